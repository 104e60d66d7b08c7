/** Worlds on fake GPUs that are watched for repeated calls, and helpers of their tests. */
import type { CommError, Communicator, DeviceBuffer, World } from "twinccl";
import type { NcclSession } from "../../../../../src/backends/nccl/session.ts";
import type { FakeGpus } from "../../../../support/fake-gpus/index.ts";
import { within } from "../../../../support/planted.ts";
import { type WatchedRepeats, watchRepeats } from "../../../../support/watched-repeats.ts";
import { cleanGpus, inWorld } from "../gpus.ts";

/** A world on fake GPUs, and the repeated calls of its session. */
export interface Watched {
  readonly gpus: FakeGpus;
  readonly world: World;
  readonly repeats: WatchedRepeats;
  /** The numbers of its repeated calls, in their order. */
  repeatedNumbers(): readonly number[];
}

/** Uses a world on fake GPUs with a watched session, and closes it. */
export async function watch(
  size: number,
  use: (watched: Watched) => Promise<void>,
  options: Parameters<typeof cleanGpus>[0] = {},
): Promise<void> {
  const gpus = cleanGpus(options);
  await inWorld(gpus, size, async (world) => {
    const repeats = watchRepeats(gpus.sessions[0] as NcclSession);
    await within(5000, use({ gpus, world, repeats, repeatedNumbers: () => repeats.numbers }));
  });
}

/** A buffer of ones and the call that is repeated with it. */
export function doubling(comm: Communicator): { send: DeviceBuffer<"int32">; op: "sum" } {
  return { send: comm.alloc("int32", 1).fill(1), op: "sum" };
}

const codeOf = (error: unknown): string => (error as CommError).code;
/** The outcome of an operation: `done`, or the code of its error. */
export const outcome = (op: PromiseLike<unknown>): Promise<string> =>
  Promise.resolve(op).then(() => "done", codeOf);
