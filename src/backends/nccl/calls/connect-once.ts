/** What NCCL does when ranks of several processes first use a connection, for which it waits for them: on other threads. */
import type { RankCall } from "../../../api/index.ts";
import { within } from "../device/give-back.ts";
import { waitedFor } from "../device/waited-for.ts";
import type { ByteEnd } from "../result/nccl-background.ts";
import type { NcclCommunicator } from "./communicators.ts";
import type { Pair } from "./pairs.ts";

/** How long ranks that have come together are connected when one of them has given up: the others are at it too. */
const graceMs = 1000;

/** A first use. */
export interface First {
  /** The rank of this process. */
  readonly rank: number;
  /** Whether it connects all ranks, both ways; else these pairs, all with this rank. */
  readonly all: boolean;
  readonly pairs: ReadonlyMap<number, Pair>;
  /** Calls that may use symmetric memory that is not registered. */
  readonly rows: readonly RankCall[];
}

/** Connects ranks and registers memory. True when that is done; false when it was given up, and is left alone. */
export function connectOnce(
  comm: NcclCommunicator,
  first: First,
  givenUp: AbortSignal,
): Promise<boolean> {
  let isLeft = false;
  const isOver = (): boolean => isLeft || comm.isOver;
  const work = comm
    .connect(endsOf(comm.size, first))
    .then(() => comm.windows.coverInBackground(first.rows, isOver));
  const inTime = async (): Promise<boolean> => {
    await unlessFired(work, givenUp);
    isLeft = givenUp.aborted && !(await within(graceMs, work));
    return !isLeft && work;
  };
  return waitedFor(inTime());
}

/** This rank's ends of a byte to each whom it sends to, and from each from whom it receives. */
function endsOf(size: number, { rank, all, pairs }: First): ByteEnd[] {
  const ranks = all ? Array.from({ length: size }, (_, peer) => peer) : [];
  const ways = all
    ? ranks.flatMap((peer): Pair[] => [
        [rank, peer],
        [peer, rank],
      ])
    : [...pairs.values()];
  return ways
    .filter(([from, to]) => from !== to)
    .map(([from, to]) =>
      from === rank ? { direction: "send", peer: to } : { direction: "recv", peer: from },
    );
}

/** Resolves when the work is done, or the signal has fired. */
async function unlessFired(work: Promise<boolean>, signal: AbortSignal): Promise<void> {
  const over = new AbortController();
  const fired = new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { signal: over.signal });
  });
  try {
    await Promise.race([work, fired]);
  } finally {
    over.abort();
  }
}
