/** Gather: the root ends with the inputs of all ranks, one after another or where it says. */
import type { Data, GatherArgs } from "../calls.ts";
import { type Prepared, type PreparedBlocks, preparedCall } from "../ledger/posting.ts";
import type { Specification } from "../specification.ts";
import { assertDisjoint, blocksIn, countsOfRoot } from "./blocks.ts";
import type { Validator } from "./validate.ts";

/** Out block s of the root = block 0 of rank s; other ranks have no output. */
export const gatherSpec: Specification = {
  collective: "gather",
  reduces: false,
  rooted: true,
  synchronises: false,
  inBlocks: () => 1,
  outBlocks: (ranks, rank, root) => (rank === root ? ranks : 0),
  expected: (_ranks, _rank, block) => [{ rank: block, block: 0 }],
  inPlace: (_ranks, rank, _block, root) => (rank === root ? root : undefined),
};

/** Checks one rank's arguments: the root's `recv` holds every rank's block; the others have none. */
export function prepareGather<S extends Data, R extends Data | undefined>(
  check: Validator,
  args: GatherArgs<S, R>,
  rank: number,
  size: number,
): Prepared<R | undefined> {
  const root = check.rank("root", args.root);
  const send = check.buffer("send", args.send);
  if (rank !== root) {
    check.rootOnly("recv", args.recv, root);
    check.rootOnly("recvCounts", args.recvCounts, root);
    check.rootOnly("recvOffsets", args.recvOffsets, root);
  }
  const recv = rank === root ? check.buffer("recv", args.recv) : undefined;
  let blocks: PreparedBlocks | undefined;
  if (recv !== undefined) {
    const recvCounts = countsOfRoot(check, "recvCounts", args.recvCounts, send, size);
    const recvOffsets = blocksIn(check, "recv", recv, send.dtype, recvCounts, args.recvOffsets);
    assertDisjoint(check, recvCounts, recvOffsets);
    check.apart(send, recv, recvOffsets[rank]);
    blocks = { recvCounts, recvOffsets };
  }
  const call = { dtype: send.dtype, count: send.length, root, send, recv, blocks };
  return preparedCall("gather", call, args.recv as R | undefined, []);
}
