/** The result of a finished job in one line and one number. */

import { constants } from "node:os";
import type { RankEnd } from "./rank-end.ts";

/** The end of a process as a status and in words. */
export function endOf(
  code: number | null,
  signal: NodeJS.Signals | null,
): Pick<RankEnd, "status" | "how"> {
  if (signal !== null) return { status: 128 + constants.signals[signal], how: signal };
  return { status: code ?? 1, how: `exit status ${code}` };
}

/** The rank to blame: the first that failed by itself, else the first that a signal of ours made fail. */
export function firstFailure(ends: readonly RankEnd[]): RankEnd | undefined {
  const failed = ends.filter(({ status }) => status !== 0);
  return failed.find(({ isStopped }) => !isStopped) ?? failed[0];
}

/** The summary of a job that failed; empty for one that did not. `cause` is what made the launcher stop it. */
export function summary(ends: readonly RankEnd[], cause: string | undefined): string {
  const first = firstFailure(ends);
  if (first === undefined) return "";
  const others = ends.filter((end) => end !== first).sort((a, b) => a.rank - b.rank);
  const stopped = others.filter(({ isStopped, status }) => isStopped && status !== 0);
  const failed = others.filter(({ isStopped, status }) => !isStopped && status !== 0);
  const well = others.filter(({ status }) => status === 0);
  const seconds = (first.afterMs / 1_000).toFixed(1);
  const verb = first.isStopped ? "was stopped" : "failed first";
  const parts = [
    ...(cause === undefined ? [] : [cause]),
    `rank ${first.rank} ${verb} after ${seconds} s: ${first.how}`,
    ...failed.map(({ rank, how }) => `rank ${rank} failed too: ${how}`),
    ...(stopped.length === 0 ? [] : [`${ranks(stopped)} stopped`]),
    ...(well.length === 0 ? [] : [`${ranks(well)} ended well`]),
  ];
  return `twinccl launch: ${parts.join("; ")}\n`;
}

function ranks(ends: readonly RankEnd[]): string {
  const numbers = ends.map(({ rank }) => rank);
  return `${numbers.length === 1 ? "rank" : "ranks"} ${numbers.join(", ")}`;
}
