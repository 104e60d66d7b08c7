/** Tells hooks and Node's diagnostics channels that a call is posted, and how it ended. */
import type { HookList, OpInfo } from "../hooks.ts";
import type { Posting } from "../ledger/calls/posting.ts";
import type { CommOp } from "../op.ts";
import { type Diagnostics, diagnosticsOf } from "./diagnostics.ts";

/** A call as it was made, not in halves. */
export type Announced = Pick<Posting, "call" | "op">;

/** Who makes it. */
interface Caller {
  readonly comm: string;
  readonly rank: number;
}

/** What is told of one operation, at every moment: its number is put right where others were posted before it. */
type Told = OpInfo & { call: number };

/**
 * Tells of the beginning of a call that will be `number`, and those who are there now of its end; `channel` where somebody
 * listens. Whoever was told of the one is told of the other, also where a hook throws: whoever posts the call fails it with that.
 */
export function tellCall(
  hooks: HookList,
  { comm, rank }: Caller,
  { call, op }: Announced,
  number: number,
  channel: Diagnostics | undefined,
): void {
  const { collective, dtype, count } = call;
  const { place } = op;
  const info: Told = { comm, rank, call: number, collective, dtype, count, place };
  const tellEnd = hooks.atEnd();
  try {
    hooks.posting(info);
  } finally {
    if (channel !== undefined) tellChannel(channel, info, op);
    op.whenSettled((error) => tellEnd(numbered(info, op), error));
  }
}

/** Tells the channel of groups of one whose first call will be `number`; hooks and books know its parts. */
export function tellGroup(
  { comm, rank }: Caller,
  op: CommOp,
  calls: number,
  number: () => number,
): void {
  const channel = diagnosticsOf("group");
  if (channel === undefined) return;
  const { place } = op;
  const told = { comm, rank, collective: "group", dtype: undefined, count: calls, place } as const;
  tellChannel(channel, { ...told, call: number() }, op);
}

function tellChannel(channel: Diagnostics, info: Told, op: CommOp): void {
  const end = channel.start(info);
  op.whenFinal((error) => end(numbered(info, op).call, error));
}

/** With the number that the operation got, if it was posted. */
function numbered(info: Told, { call }: CommOp): OpInfo {
  if (call >= 0) info.call = call;
  return info;
}
