/** The first use of a connection between ranks of several processes, in which NCCL waits for them: on other threads. */
import type { RankCall } from "../../../api/index.ts";
import { within } from "../device/give-back.ts";
import { waitedFor } from "../device/waited-for.ts";
import type { ByteEnd } from "../result/nccl.ts";
import type { NcclCommunicator } from "./communicators.ts";

/** Longest time in which ranks that have met are connected when one of them has given up: the others are at it too. */
const graceMs = 1000;

/** A connection that was left open ends with its communicator, or is given up. */
const longestMs = 2 ** 31 - 1;

/** A first use. */
export interface First {
  /** The rank of this process. */
  readonly rank: number;
  /** True where it connects all ranks; else this rank with these. */
  readonly all: boolean;
  readonly peers: ReadonlySet<number>;
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
  const leftOpen = async (error: unknown): Promise<boolean> => {
    const over = comm.leftOpen(error);
    return (await within(longestMs, over, givenUp)) && over;
  };
  return waitedFor(inTime().catch(leftOpen));
}

/** This rank's ends of a byte each way between it and each of its new peers. */
function endsOf(size: number, { rank, all, peers }: First): ByteEnd[] {
  const met = all ? Array.from({ length: size }, (_, each) => each) : [...peers];
  return met
    .filter((peer) => peer !== rank)
    .flatMap((peer): ByteEnd[] => [
      { direction: "send", peer },
      { direction: "recv", peer },
    ]);
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
