/** Calls hooks and Node's diagnostics channels when a call is posted, and at its end. */
import type { HookList, OpInfo } from "../hooks.ts";
import type { Posting } from "../ledger/calls/posting.ts";
import type { CommOp } from "../op.ts";
import { type Diagnostics, diagnosticsOf } from "./diagnostics.ts";

/** A call as it was made, not in halves. */
export type Announced = Pick<Posting, "call" | "op">;

/** The rank that makes it. */
interface Caller {
  readonly comm: string;
  readonly rank: number;
}

/** The message of one operation, at every moment: its number is corrected where others were posted before it. */
type Told = OpInfo & { call: number };

/**
 * Calls the hooks of the beginning of a call that will be `number`, and at its end those present now; `channel` where there are
 * subscribers. Hooks of the beginning and of the end come in pairs, also where one throws: then the call fails with that error.
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

/** Publishes a group with a first call that will be `number`; hooks and counts have its parts. */
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
