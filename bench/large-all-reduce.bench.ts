/**
 * An all-reduce of 64 MiB of float32 on each of eight ranks, by ring and by NCCL's plan: the data path of the cpu
 * executor, beside what the same bytes cost as plain copies. Time of all ranks together; the first call and memory are
 * shown apart.
 */
import { createWorld } from "twinccl";
import { type SimOptions, sim } from "twinccl/sim";
import { type Figure, median, report } from "./support/report.ts";

const ranks = 8;
const bytes = 2 ** 26;
const warmCalls = 7;
const figures: Figure[] = [];

/** Eight copies of 64 MiB: each byte is read and written once, as an ideal fold would at least do. */
function copyProbe(): number[] {
  const from = new Float32Array(bytes / 4).fill(1);
  const to = new Float32Array(bytes / 4);
  return Array.from({ length: warmCalls }, () => {
    const began = performance.now();
    for (let rank = 0; rank < ranks; rank++) to.set(from);
    return performance.now() - began;
  });
}

async function allReduces(
  inPlace: boolean,
  options: SimOptions,
): Promise<{ times: number[]; first: number; extra: number; held: number }> {
  const world = await createWorld({ backend: sim(options), size: ranks });
  const times: number[] = [];
  let began = 0;
  let peakBefore = 0;
  let buffersBefore = 0;
  let extra = 0;
  let held = 0;
  await world.run(async (comm) => {
    const send = comm.alloc("float32", bytes / 4).fill(comm.rank + 1);
    // Filled, so that the operating system has given the pages before memory is looked at.
    const recv = inPlace ? send : comm.alloc("float32", bytes / 4).fill(1);
    for (let call = 0; call <= warmCalls; call++) {
      await comm.barrier();
      if (comm.rank === 0) {
        if (call === 0) {
          peakBefore = process.resourceUsage().maxRSS * 1024;
          buffersBefore = process.memoryUsage().arrayBuffers;
        }
        began = performance.now();
      }
      await comm.barrier();
      await comm.allReduce({ send, recv, op: "sum" });
      await comm.barrier();
      if (comm.rank !== 0) continue;
      times.push(performance.now() - began);
      if (call > 0) continue;
      extra = process.resourceUsage().maxRSS * 1024 - peakBefore;
      held = process.memoryUsage().arrayBuffers - buffersBefore;
    }
    send.dispose();
    recv.dispose();
  });
  await world.close();
  const [first = Number.NaN, ...warm] = times;
  return { times: warm, first, extra, held };
}

const mebibytes = (count: number): number => count / 2 ** 20;
const copies = median(copyProbe());
figures.push({ name: "8 copies of 64 MiB (TypedArray.set)", unit: "ms", ...copies });
const ring: SimOptions = { algorithms: { allReduce: "ring" } };
const runs = [
  { what: "ring all-reduce, in place", inPlace: true, options: ring },
  { what: "ring all-reduce, out of place", inPlace: false, options: ring },
  { what: "all-reduce by NCCL's plan, in place", inPlace: true, options: { like: "nccl-2.28" } },
] as const;
for (const { what, inPlace, options } of runs) {
  const name = `8 x 64 MiB ${what}`;
  const { times, first, extra, held } = await allReduces(inPlace, options);
  const warm = median(times);
  figures.push(
    { name: `${name}, first call`, unit: "ms", value: first },
    { name: `${name}, warm`, unit: "ms", ...warm, goal: 250 },
    { name: `${name}, warm, over the copies`, unit: "times", value: warm.value / copies.value },
    {
      name: `${name}, peak of resident memory above the buffers`,
      unit: "MiB",
      value: mebibytes(extra),
      goal: 64,
    },
    { name: `${name}, array buffers kept after it`, unit: "MiB", value: mebibytes(held) },
  );
}
report("large-all-reduce", figures);
