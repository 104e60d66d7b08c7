/** Programs that leave marks, so that the order in which their ranks resume can be seen. */
import { type Communicator, createWorld } from "twinccl";
import { type SimOptions, sim } from "twinccl/sim";

/** Leaves a mark behind those of all ranks. */
export type Mark = (text: unknown) => void;

/** Marks of all ranks of one run, in order. */
export async function marks(
  { size, ...options }: SimOptions & { readonly size: number },
  program: (comm: Communicator, mark: Mark) => Promise<unknown>,
): Promise<string> {
  const order: unknown[] = [];
  const world = await createWorld({ backend: sim(options), size });
  try {
    await world.run((comm) => program(comm, (text) => order.push(text)));
  } finally {
    await world.close();
  }
  return order.join("");
}

/** Three barriers of each rank on a communicator of its own, with a mark behind each. */
export async function threeSteps(comm: Communicator, mark: Mark): Promise<void> {
  const own = await comm.split({ color: comm.rank });
  for (let step = 0; step < 3; step++) {
    await own?.barrier();
    mark(comm.rank);
  }
}

/** Four messages that pass from rank to rank, with a mark of each rank that has one. */
export async function pipeline(comm: Communicator, mark: Mark): Promise<void> {
  const item = comm.alloc("int32", 1);
  for (let turn = 0; turn < 4; turn++) {
    if (comm.rank > 0) await comm.recv({ recv: item, peer: comm.rank - 1 });
    mark(comm.rank);
    if (comm.rank < comm.size - 1) await comm.send({ send: item, peer: comm.rank + 1 });
  }
}
