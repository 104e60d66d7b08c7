/** Scatter: every rank ends with its block of the root's input. */
import type { Data, ScatterArgs } from "../calls.ts";
import { type Prepared, type PreparedBlocks, preparedCall } from "../ledger/posting.ts";
import type { Specification } from "../specification.ts";
import { blocksIn, countsOfRoot } from "./blocks.ts";
import type { Validator } from "./validate.ts";

/** Out block 0 of rank r = block r of the root; other ranks have no input. */
export const scatterSpec: Specification = {
  collective: "scatter",
  reduces: false,
  rooted: true,
  synchronises: false,
  inBlocks: (ranks, rank, root) => (rank === root ? ranks : 0),
  outBlocks: () => 1,
  expected: (_ranks, rank, _block, root) => [{ rank: root, block: rank }],
  inPlace: (_ranks, rank, block, root) => (rank === root && block === root ? 0 : undefined),
};

/** Checks one rank's arguments: the root's `send` holds every rank's block; the others have none. */
export function prepareScatter<S extends Data, R extends Data>(
  check: Validator,
  args: ScatterArgs<S, R>,
  rank: number,
  size: number,
): Prepared<R> {
  const root = check.rank("root", args.root);
  const recv = check.buffer("recv", args.recv);
  if (rank !== root) {
    check.rootOnly("send", args.send, root);
    check.rootOnly("sendCounts", args.sendCounts, root);
    check.rootOnly("sendOffsets", args.sendOffsets, root);
  }
  const send = rank === root ? check.buffer("send", args.send) : undefined;
  let blocks: PreparedBlocks | undefined;
  if (send !== undefined) {
    const sendCounts = countsOfRoot(check, "sendCounts", args.sendCounts, recv, size);
    const sendOffsets = blocksIn(check, "send", send, recv.dtype, sendCounts, args.sendOffsets);
    check.apart(send, recv, -(sendOffsets[rank] as number));
    blocks = { sendCounts, sendOffsets };
  }
  const call = { dtype: recv.dtype, count: recv.length, root, send, recv, blocks };
  return preparedCall("scatter", call, args.recv, []);
}
