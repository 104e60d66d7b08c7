// Opens, uses and closes a world over and over, and reports the growth of device and host memory.
//   node --expose-gc cycles.mjs SIZE CYCLES SECONDS LIBCUDART
// prints one line of JSON: cycles done, milliseconds of one, and bytes that stay behind per cycle, after the first 20.
import { readFileSync } from "node:fs";
import koffi from "koffi";
import { createWorld } from "twinccl";
import { nccl } from "twinccl/nccl";
import { allocatedBytes } from "./allocated.mjs";

const [size, cycles, seconds] = process.argv.slice(2).map(Number);
const cudart = koffi.load(process.argv[5] ?? "libcudart.so");
const setDevice = cudart.func("int cudaSetDevice(int)");
const memGetInfo = cudart.func("int cudaMemGetInfo(_Out_ size_t *, _Out_ size_t *)");

/** Cycles that fill caches, here and in the driver. */
const settling = 20;

/** Bytes in use on the first devices, by any process. */
function deviceBytes() {
  let used = 0;
  for (let device = 0; device < size; device++) {
    const [free, total] = [[0], [0]];
    if (setDevice(device) !== 0 || memGetInfo(free, total) !== 0) return Number.NaN;
    used += Number(total[0]) - Number(free[0]);
  }
  return used;
}

/** Resident bytes by kind: what is no file's, what of files was looked at, and what is shared with others. */
function residentBytes() {
  const status = readFileSync("/proc/self/status", "utf8");
  const of = (name) => Number(new RegExp(`^${name}:\\s*(\\d+) kB`, "m").exec(status)?.[1]) * 1024;
  return { anonymous: of("RssAnon"), files: of("RssFile"), shared: of("RssShmem") };
}

/** Steps of more bytes than this are reported one by one. */
const largeStep = 2 ** 20;

async function cycle() {
  const world = await createWorld({ backend: nccl(), size });
  try {
    await world.run(async (comm) => {
      const send = comm.alloc("float32", 2 ** 18).fill(1);
      await comm.allReduce({ send, op: "sum" });
      const [first] = await send.subarray(0, 1).toHost();
      if (first !== size) throw new Error(`found ${first}, needs ${size}`);
    });
  } finally {
    await world.close();
  }
}

/** Growth per step, by least squares. */
function slope(values) {
  const mean = (numbers) => numbers.reduce((sum, each) => sum + each, 0) / numbers.length;
  const middle = (values.length - 1) / 2;
  const average = mean(values);
  const product = mean(values.map((value, at) => (value - average) * (at - middle)));
  return product / mean(values.map((_, at) => (at - middle) ** 2));
}

const began = performance.now();
const allocated = allocatedBytes();
const [device, host, inUse, heap, times, resident] = [[], [], [], [], [], []];
for (let done = 0; done < cycles && performance.now() - began < seconds * 1000; done++) {
  const start = performance.now();
  await cycle();
  times.push(performance.now() - start);
  globalThis.gc?.();
  device.push(deviceBytes());
  const { rss, heapTotal } = process.memoryUsage();
  host.push(rss);
  inUse.push(allocated());
  heap.push(heapTotal);
  resident.push(residentBytes());
}
/** The cycles in which the process grew by much, and what of it grew. */
const steps = resident.flatMap((now, at) => {
  const before = resident[at - 1] ?? now;
  const grown = Object.entries(now).map(([kind, bytes]) => [kind, bytes - before[kind]]);
  const large = grown.filter(([, bytes]) => bytes > largeStep);
  return large.length === 0 ? [] : [{ cycle: at, ...Object.fromEntries(large) }];
});
/** The largest growth in one cycle: it shows whether the whole growth is many small steps or a large one. */
const largestStep = (values) => Math.max(...values.slice(1).map((value, at) => value - values[at]));
const kept = (values) => values.slice(Math.min(settling, Math.max(0, values.length - 2)));
const sorted = kept(times).sort((a, b) => a - b);
const figures = {
  size,
  cycles: times.length,
  settling: times.length - sorted.length,
  cycle_ms: sorted[sorted.length >> 1],
  device_bytes_per_cycle: slope(kept(device)),
  device_bytes_grown: (device.at(-1) ?? 0) - (kept(device)[0] ?? 0),
  host_bytes_per_cycle: slope(kept(host)),
  host_bytes_grown: (host.at(-1) ?? 0) - (kept(host)[0] ?? 0),
  host_bytes_largest_step: largestStep(kept(host)),
  host_steps_bytes: steps,
  allocated_bytes_per_cycle: slope(kept(inUse)),
  allocated_bytes_grown: (inUse.at(-1) ?? 0) - (kept(inUse)[0] ?? 0),
  heap_bytes_grown: (heap.at(-1) ?? 0) - (kept(heap)[0] ?? 0),
};
process.stdout.write(`${JSON.stringify(figures)}\n`);
