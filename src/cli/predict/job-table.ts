/** The times of a program: as a document, and as tables. */
import { countText } from "../../api/error-text.ts";
import type { CallRow, JobTimes, RankTimes } from "./job-times.ts";
import { type Library, unmeasuredText } from "./library.ts";
import { sizeLabel, timeLabel } from "./units.ts";

/** The prediction of a program. */
export interface JobReport {
  readonly file: string;
  readonly ranks: number;
  readonly library: Library | undefined;
  /** The machine or the links in words. */
  readonly clock: string;
  /** True if buffers had contents. */
  readonly contents: boolean;
  readonly times: JobTimes;
}

/** Time of a step: the mean of the marked ones, else the whole program. */
function stepNsOf({ stepsNs, totalNs }: JobTimes): number {
  const sum = stepsNs.reduce((all, each) => all + each, 0);
  return stepsNs.length === 0 ? totalNs : sum / stepsNs.length;
}

function shareOf(part: number, whole: number): number {
  return whole === 0 ? 0 : part / whole;
}

/** A line of the file, the ranks, the time of a step and the machine. */
export function jobTitle({ file, ranks, clock, times }: JobReport): string {
  const what = times.stepsNs.length === 0 ? "" : "a step takes ";
  return `${file} on ${countText(ranks, "rank")}: ${what}${timeLabel(stepNsOf(times))}, predicted for ${clock}`;
}

/** One document. */
export function jobDocument({ file, ranks, library, clock, contents, times }: JobReport): object {
  const { stepsNs, beforeNs, totalNs } = times;
  return {
    predicted: true,
    ...{ file, ranks, contents, predictedFor: clock },
    like: library?.options.like ?? null,
    mode: library?.profile?.mode ?? null,
    ...{ stepNs: stepNsOf(times), stepsNs, beforeNs, totalNs },
    perRank: times.ranks.map((each) => ({
      ...each,
      communicationShare: shareOf(each.exposedNs, each.totalNs),
      hiddenShare: shareOf(each.hiddenNs, each.callNs),
    })),
    calls: times.calls.map(({ dtype, predictedFor, ...row }) => ({
      ...row,
      dtype: dtype ?? null,
      predictedFor: predictedFor ?? null,
    })),
  };
}

/** The tables. */
export function jobTable(report: JobReport): string {
  const { file, ranks, library, clock, times } = report;
  const { calls } = times;
  const reasons = new Set(calls.flatMap(({ extrapolated }) => extrapolated ?? []));
  const isOnMachine = library?.profile?.mode !== undefined && clock === library.machineText;
  return [
    `# predicted for ${clock}: ${file}, ${countText(ranks, "rank")}`,
    ...(isOnMachine ? [`# ${library.modeText}`] : []),
    ...(library !== undefined && library.profile === undefined
      ? [`# ${unmeasuredText(library)}`]
      : []),
    ...[...reasons].map((why) => `# ~ extrapolated: ${why}`),
    `step  ${timeLabel(stepNsOf(times))}  (${stepsText(times)})`,
    "",
    ...tableLines(
      ["rank", "time", "work", "calls", "hidden", "calls alone", "idle", "sent"],
      rankCells(times.ranks),
    ),
    "",
    ...tableLines(
      ["collective", "dtype", "size", "ranks", "calls", "each", "all", "waiting"],
      calls.map((row) => callCells(row, isOnMachine)),
    ),
    ...(isOnMachine && calls.some(({ predictedFor }) => predictedFor === undefined)
      ? ["# on links: calls that NCCL's plan is not known of"]
      : []),
    "",
  ].join("\n");
}

function stepsText({ stepsNs: { length }, beforeNs }: JobTimes): string {
  if (length === 0) return 'the whole program; comm.work(0, "step") begins a step';
  const mean = length === 1 ? "1 step" : `mean of ${length} steps`;
  return beforeNs === 0 ? mean : `${mean}, after ${timeLabel(beforeNs)}`;
}

/** A row for ranks one after another with the same times. */
function rankCells(ranks: readonly RankTimes[]): string[][] {
  const rows: { first: number; last: number; cells: string[] }[] = [];
  for (const each of ranks) {
    const { rank, totalNs, workNs, callNs, hiddenNs, exposedNs, idleNs, sentBytes } = each;
    const percent = (part: number, whole: number): string =>
      `${timeLabel(part)} (${(100 * shareOf(part, whole)).toFixed(0)} %)`;
    const cells = [
      ...[timeLabel(totalNs), timeLabel(workNs), timeLabel(callNs), percent(hiddenNs, callNs)],
      ...[percent(exposedNs, totalNs), timeLabel(idleNs), sizeLabel(sentBytes)],
    ];
    const above = rows.at(-1);
    if (above !== undefined && above.cells.join() === cells.join()) above.last = rank;
    else rows.push({ first: rank, last: rank, cells });
  }
  return rows.map(({ first, last, cells }) => {
    return [first === last ? `${first}` : `${first}..${last}`, ...cells];
  });
}

function callCells(row: CallRow, isOnMachine: boolean): string[] {
  const { collective, dtype = "-", bytes, ranks, calls, movingNs, waitingNs } = row;
  const isOnLinks = isOnMachine && row.predictedFor === undefined;
  const mark = row.extrapolated === undefined ? "" : "~";
  return [
    ...[
      `${collective}${isOnLinks ? " #" : ""}`,
      dtype,
      sizeLabel(bytes),
      String(ranks),
      String(calls),
    ],
    ...[`${mark}${timeLabel(movingNs / calls)}`, timeLabel(movingNs), timeLabel(waitingNs)],
  ];
}

/** Columns of equal width; the first two are words, the others numbers. */
function tableLines(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const all = [head, ...rows];
  const widths = head.map((_, at) => Math.max(...all.map((row) => row[at]?.length ?? 0)));
  return all.map((row) =>
    row
      .map((cell, at) => (at === 0 ? cell.padEnd(widths[at] ?? 0) : cell.padStart(widths[at] ?? 0)))
      .join("  ")
      .trimEnd(),
  );
}
