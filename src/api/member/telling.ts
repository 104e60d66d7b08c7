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

/**
 * Tells of the beginning of a call, and those who are there now of its end; `channel` where somebody listens. Whoever was
 * told of the one is told of the other, also where a hook throws: whoever posts the call fails it with that.
 */
export function tellCall(
  hooks: HookList,
  { comm, rank }: Caller,
  { call, op }: Announced,
  channel: Diagnostics | undefined,
): void {
  const { collective, dtype, count } = call;
  const info = (): OpInfo => ({ comm, rank, call: op.call, collective, dtype, count });
  const tellEnd = hooks.atEnd();
  try {
    hooks.posting(info());
  } finally {
    channel?.start(info());
    op.whenSettled((error) => tellEnd(info(), error));
    if (channel !== undefined) op.whenFinal((error) => channel.end(info(), error));
  }
}

/** Tells the channel of groups of one; hooks and books know its parts. */
export function tellGroup({ comm, rank }: Caller, op: CommOp, calls: number): void {
  const channel = diagnosticsOf("group");
  if (channel === undefined) return;
  const told = { comm, rank, collective: "group", dtype: undefined, count: calls } as const;
  const info = (): OpInfo => ({ ...told, call: op.call });
  channel.start(info());
  op.whenFinal((error) => channel.end(info(), error));
}
