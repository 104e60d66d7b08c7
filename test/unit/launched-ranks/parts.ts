/** Parts for tests of the way to launched ranks. Their communicator has no more than a rank and a size. */
import { CommClosedError } from "twinccl";

/** The place of a rank. */
export interface Place {
  readonly rank: number;
  readonly size: number;
}

/** Rank 1 runs the act; the others wait for it, as they would in a collective. */
function onRankOne(act: () => unknown) {
  return ({ rank }: Place): unknown => (rank === 1 ? act() : new Promise(() => undefined));
}

export const parts = {
  place: (place: Place) => ({ ...place, pid: process.pid }),
  echo: <T>({ rank }: Place, value: T): { rank: number; value: T } => ({ rank, value }),
  throws: onRankOne(() => {
    throw new CommClosedError({ headline: "planted" }, { field: "send" });
  }),
  givesFunction: onRankOne(() => () => 0),
  exits: onRankOne(() => process.exit(3)),
  exitsWell: onRankOne(() => process.exit(0)),
  isKilled: onRankOne(() => process.kill(process.pid, "SIGKILL")),
  neverAnswers: ({ rank }: Place): unknown => {
    process.stdout.write(`rank ${rank} begins\n`);
    return rank === 1 ? new Promise(() => undefined) : undefined;
  },
  neverReturns: ({ rank }: Place): void => {
    while (rank === 1);
  },
} as const;
