/** Worlds on fake GPUs that are watched for calls which their ranks make again. */
import type { CommError, Communicator, DeviceBuffer, World } from "twinccl";
import { vi } from "vitest";
import type { FakeGpus } from "../../../../support/fake-gpus/index.ts";
import { within } from "../../../../support/planted.ts";
import { cleanGpus, inWorld } from "../gpus.ts";

/** A world on fake GPUs, and which calls its session was given again. */
export interface Watched {
  readonly gpus: FakeGpus;
  readonly world: World;
  /** Their numbers, in the order in which they came. */
  again(): number[];
}

/** The numbers of the calls that the session of a world is handed again from now on, by themselves or behind others. */
export function handedAgain(gpus: FakeGpus): number[] {
  const [session] = gpus.sessions;
  if (session === undefined) throw new Error("a world has a session");
  const numbers: number[] = [];
  const { enqueueRepeated, appendRepeated } = session;
  vi.spyOn(session, "enqueueRepeated").mockImplementation((kept, number, waiting) => {
    numbers.push(number);
    enqueueRepeated.call(session, kept, number, waiting);
  });
  vi.spyOn(session, "appendRepeated").mockImplementation((kept, number) => {
    numbers.push(number);
    appendRepeated.call(session, kept, number);
  });
  return numbers;
}

/** Uses a world on fake GPUs with a watched session, and closes it. */
export async function watch(
  size: number,
  use: (watched: Watched) => Promise<void>,
  options: Parameters<typeof cleanGpus>[0] = {},
): Promise<void> {
  const gpus = cleanGpus(options);
  await inWorld(gpus, size, async (world) => {
    const numbers = handedAgain(gpus);
    await within(5000, use({ gpus, world, again: () => numbers }));
  });
}

/** A buffer of ones and the call that is made with it again and again. */
export function doubling(comm: Communicator): { send: DeviceBuffer<"int32">; op: "sum" } {
  return { send: comm.alloc("int32", 1).fill(1), op: "sum" };
}

const codeOf = (error: unknown): string => (error as CommError).code;
/** The outcome of an operation: `done`, or the code of its error. */
export const outcome = (op: PromiseLike<unknown>): Promise<string> =>
  Promise.resolve(op).then(() => "done", codeOf);
