/** A simulated world for one test. */
import { type Backend, type Communicator, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { within } from "./planted.ts";

/** Far longer than any such program takes, also on a machine that stands still for seconds. */
const patienceMs = 20_000;

/** Runs a program on every rank of a world of its own; one that hangs is an error. */
export async function inWorld<T>(
  size: number,
  program: (comm: Communicator) => T | PromiseLike<T>,
  backend: Backend = sim(),
): Promise<T[]> {
  const world = await createWorld({ backend, size });
  try {
    return await within(patienceMs, world.run(program));
  } finally {
    await world.close();
  }
}
