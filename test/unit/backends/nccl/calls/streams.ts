/** Communicators with streams of their own, and blocked streams, for tests. */
import type { Communicator } from "twinccl";
import type { FakeGpus } from "../../../../support/fake-gpus/index.ts";
import { turns } from "../gpus.ts";
import { outcome } from "./watched-world.ts";

/** Blocks a stream until the returned function is called. */
export function block({ machine }: FakeGpus, handle: bigint): () => void {
  let isOpen = false;
  machine.stream(handle).put(() => ({ what: "a blocker", step: () => isOpen }));
  return () => {
    isOpen = true;
  };
}

/** A split with streams of its own. */
export async function ofItsOwn(comm: Communicator): Promise<Communicator> {
  return (await comm.split({ color: 0, stream: "own" })) as Communicator;
}

/** The stream of a communicator that has its own. */
export const ownStream = ({ stream }: Communicator): bigint => stream as bigint;

/** A sum in place, by default of `rank + 1`. */
export const sum = (comm: Communicator, buffer = comm.alloc("int32", 1).fill(comm.rank + 1)) =>
  comm.allReduce({ send: buffer, op: "sum" });

/** The outcome of an operation, or `pending` where it has none after some turns of the event loop. */
export async function stateOf(op: PromiseLike<unknown>): Promise<string> {
  return Promise.race([outcome(op), turns(30).then(() => "pending")]);
}
