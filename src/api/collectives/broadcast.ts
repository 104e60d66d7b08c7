/** Broadcast: every rank ends with a copy of the root's input. */
import type { BroadcastArgs, Data, Received } from "../calls.ts";
import { type Prepared, preparedCall } from "../ledger/posting.ts";
import type { Specification } from "../specification.ts";
import type { Validator } from "./validate.ts";

/** Out block 0 of every rank = block 0 of the root. */
export const broadcastSpec: Specification = {
  collective: "broadcast",
  reduces: false,
  rooted: true,
  synchronises: false,
  inBlocks: (_ranks, rank, root) => (rank === root ? 1 : 0),
  outBlocks: () => 1,
  expected: (_ranks, _rank, _block, root) => [{ rank: root, block: 0 }],
  inPlace: () => 0,
};

/** Checks one rank's arguments: the root needs data, every other rank a place for it. */
export function prepareBroadcast<S extends Data, R extends Data | undefined>(
  check: Validator,
  args: BroadcastArgs<S, R>,
  rank: number,
): Prepared<Received<R, S>> {
  const root = check.rank("root", args.root);
  if (rank !== root) check.rootOnly("send", args.send, root);
  const recv = check.buffer("recv", args.recv ?? (rank === root ? args.send : undefined));
  const send = rank === root ? check.buffer("send", args.send ?? args.recv) : undefined;
  if (send !== undefined) {
    check.shape("recv", recv, send.dtype, send.length);
    check.apart(send, recv, 0);
  }
  const call = { dtype: recv.dtype, count: recv.length, root, send, recv };
  return preparedCall("broadcast", call, (args.recv ?? args.send) as Received<R, S>);
}
