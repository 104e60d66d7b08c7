// What twinccl does beside its peers: each row gives the milliseconds of its calls, of all ranks together.

import { createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { smallProgram } from "../hot/small-program.mjs";

const ranks = 8;
const elementBytes = { float32: 4, bfloat16: 2, float16: 2, int8: 1 };

/** Bytes that one rank sends to another, as bench/peers/mpi-all-reduce.c deals them. */
export function share(bytes, from, to, size = ranks) {
  const weights = (size * (size + 1)) / 2;
  const part = Math.floor((bytes * (((to + from) % size) + 1)) / weights);
  return part - (part % 4);
}

/** Runs `each` so many times on all ranks; gives the time from the last rank's start to the last one's end. */
async function timed(calls, prepare, warmup = 2, size = ranks) {
  const times = [];
  let began = 0;
  let ended = 0;
  const world = await createWorld({ backend: sim(), size });
  await world.run(async (comm) => {
    const { call, dispose } = await prepare(comm);
    for (let i = -warmup; i < calls; i++) {
      await comm.barrier();
      began = performance.now();
      await call();
      ended = performance.now();
      await comm.barrier();
      if (comm.rank === 0 && i >= 0) times.push(ended - began);
    }
    dispose();
  });
  await world.close();
  return { times };
}

/** All-reduces of so many bytes on each rank, not in place. */
export function allReduces(dtype, bytes, calls) {
  return timed(calls, (comm) => {
    const length = bytes / elementBytes[dtype];
    // Small numbers, so that no sum leaves the dtype.
    const send = comm.alloc(dtype, length).fill(1);
    const recv = comm.alloc(dtype, length).fill(1);
    return {
      call: () => comm.allReduce({ send, recv, op: "sum" }),
      dispose: () => [send, recv].map((buffer) => buffer.dispose()),
    };
  });
}

/** The skewed all-to-allv. */
export function allToAllvs(bytes, calls) {
  return timed(calls, (comm) => {
    const counts = (of) => Array.from({ length: ranks }, (_, peer) => of(peer) / 4);
    const sendCounts = counts((peer) => share(bytes, comm.rank, peer));
    const recvCounts = counts((peer) => share(bytes, peer, comm.rank));
    const total = (list) => list.reduce((sum, count) => sum + count, 0);
    const send = comm.alloc("float32", total(sendCounts)).fill(1);
    const recv = comm.alloc("float32", total(recvCounts)).fill(1);
    return {
      call: () => comm.allToAllv({ send, recv, sendCounts, recvCounts }),
      dispose: () => [send, recv].map((buffer) => buffer.dispose()),
    };
  });
}

/** Ring all-reduces of so many bytes on each of many ranks, data and all, from the first call on: seconds. */
export async function wideRings(size, bytes, calls) {
  const { times } = await timed(
    calls,
    (comm) => {
      const send = comm.alloc("float32", bytes / elementBytes.float32).fill(1);
      return {
        call: () => comm.allReduce({ send, op: "max" }),
        dispose: () => send.dispose(),
      };
    },
    0,
    size,
  );
  return { times: times.map((time) => time / 1000) };
}

/** Worlds of four ranks with three calls each, one after another on one core: how many a second. */
export async function smallPrograms(programs) {
  for (let seed = 0; seed < programs; seed++) await smallProgram(seed);
  const began = performance.now();
  for (let seed = 0; seed < programs; seed++) await smallProgram(seed);
  return { times: [(1000 * programs) / (performance.now() - began)] };
}

/** Batches of small calls before those that count: the runtime compiles what they need meanwhile. */
const warmBatches = 200;

const smallBuffers = (comm) => [0, 1].map(() => comm.alloc("float32", 256).fill(1));

/** Awaited all-reduces of 1 KiB, a hundred in each sample: milliseconds of one. */
export async function smallCalls(samples) {
  const batch = 100;
  const { times } = await timed(
    samples,
    (comm) => {
      const [send, recv] = smallBuffers(comm);
      return {
        call: async () => {
          for (let i = 0; i < batch; i++) await comm.allReduce({ send, recv, op: "sum" });
        },
        dispose: () => [send, recv].map((buffer) => buffer.dispose()),
      };
    },
    warmBatches,
  );
  return { times: times.map((time) => time / batch) };
}

/** A recorded graph of a hundred such calls: milliseconds of one call in it. */
export async function graphCalls(samples) {
  const batch = 100;
  const { times } = await timed(
    samples,
    async (comm) => {
      const [send, recv] = smallBuffers(comm);
      const graph = await comm.capture(() => {
        for (let i = 0; i < batch; i++) comm.allReduce({ send, recv, op: "sum" });
      });
      return {
        call: () => graph.replay(),
        dispose: () => [send, recv].map((buffer) => buffer.dispose()),
      };
    },
    warmBatches,
  );
  return { times: times.map((time) => time / batch) };
}
