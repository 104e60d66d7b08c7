// Folds and latencies through the public interface.
import { setTimeout as delay } from "node:timers/promises";

const elementBytes = { float32: 4, bfloat16: 2, float16: 2 };
/** Calls of one measurement. */
const calls = 24;

/** Bytes that a call reads and writes, by collective. */
const moved = {
  reduce: (size, bytes) => (size + 1) * bytes,
  allReduce: (size, bytes) => 2 * size * bytes,
};

/** The best of `rounds` measurements of a fold over device-resident buffers. */
export async function foldBandwidth(world, { collective, dtype, bytes, rounds, inFlight }) {
  const count = bytes / elementBytes[dtype];
  let best = Number.POSITIVE_INFINITY;
  await world.run(async (comm) => {
    const lanes = [];
    for (let i = 0; i < inFlight; i++) lanes.push(await comm.split({ color: 0, stream: "own" }));
    const send = comm.alloc(dtype, count).fill(1.25);
    const recv = comm.alloc(dtype, count);
    const target = collective === "allReduce" || comm.rank === 0 ? { recv } : {};
    const root = collective === "reduce" ? { root: 0 } : {};
    const call = (lane) => lane[collective]({ send, ...target, op: "sum", ...root });
    for (let round = 0; round <= rounds; round++) {
      await comm.barrier();
      const began = performance.now();
      await Promise.all(
        lanes.map(async (lane) => {
          for (let i = 0; i < calls / inFlight; i++) await call(lane);
        }),
      );
      await comm.barrier();
      // The first round compiles the kernels.
      if (comm.rank === 0 && round > 0) best = Math.min(best, performance.now() - began);
    }
    send.dispose();
    recv.dispose();
  });
  const milliseconds = best / calls;
  const all = moved[collective](world.size, bytes);
  return { milliseconds, bytesMoved: all, gigabytesPerSecond: all / milliseconds / 1e6 };
}

/** Microseconds from making a small all-reduce to its result. */
export async function latency(world, bytes, runs) {
  const times = [];
  await world.run(async (comm) => {
    const buffer = comm.alloc("float32", bytes / 4);
    for (let i = 0; i < runs; i++) {
      const began = performance.now();
      await comm.allReduce({ send: buffer, op: "sum" });
      if (comm.rank === 0 && i >= runs / 4) times.push(1000 * (performance.now() - began));
    }
    buffer.dispose();
  });
  times.sort((a, b) => a - b);
  const at = (part) => times[Math.floor(part * (times.length - 1))];
  return { bytes, medianUs: at(0.5), fastestUs: at(0), p90Us: at(0.9), samples: times.length };
}

/** Milliseconds of one float32 all-reduce; the better of two. */
export async function onCpu(world, bytes) {
  let best = Number.POSITIVE_INFINITY;
  await world.run(async (comm) => {
    const send = comm.alloc("float32", bytes / 4).fill(1.25);
    const recv = comm.alloc("float32", bytes / 4);
    for (let round = 0; round < 2; round++) {
      await comm.barrier();
      const began = performance.now();
      await comm.allReduce({ send, recv, op: "sum" });
      if (comm.rank === 0) best = Math.min(best, performance.now() - began);
      await delay(0);
    }
  });
  return { milliseconds: best };
}
