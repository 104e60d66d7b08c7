// A million small calls in one world, in slices: the heap after each, collected, must not grow. Then a thousand worlds, one
// after the other: the resident memory, uncollected, must not grow.
// npm run bench:heap -- --help                         ends with status 1 when it does
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { createWorld } from "twinccl";
import { environment, environmentText } from "twinccl/bench";
import { sim } from "twinccl/sim";
import { options, whole } from "../tools/options.mjs";

const { calls, ranks, worlds } = options({
  name: "bench:heap",
  about:
    "Makes many small calls in one world, then opens and closes many worlds: neither the heap nor the resident memory may grow.",
  options: {
    calls: { is: whole(1), default: "1000000", help: "in all" },
    ranks: { is: whole(1), default: "8", help: "number of ranks" },
    worlds: { is: whole(10), default: "1000", help: "each with an all-reduce of 4 MiB a rank" },
  },
});
const slices = 10;
/** Bytes by which the heap may differ between the second slice and the last: what the runtime itself keeps more or less of. */
const noiseBytes = 512 * 1024;
/** Bytes by which the resident memory may differ so: two arenas of such a world. */
const residentNoiseBytes = ranks * 2 * 2 ** 22;

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc");

const turn = () => new Promise((resolve) => setImmediate(resolve));

/** Heap in use, and what lies outside of it in buffers, once finalisers have had their turn of the event loop. */
async function heldBytes() {
  collect();
  await turn();
  await turn();
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** Calls of every kind that loops make: the same buffers again, new ones each time, messages, groups. */
async function program(comm, count) {
  const send = comm.alloc("float32", 64);
  const recv = comm.alloc("float32", 64);
  const [to, from] = [(comm.rank + 1) % ranks, (comm.rank + ranks - 1) % ranks];
  for (let done = 0; done < count; done += 10) {
    for (let i = 0; i < 4; i++) await comm.allReduce({ send, op: "sum" });
    await comm.broadcast(comm.rank === 0 ? { send, recv, root: 0 } : { recv, root: 0 });
    await comm.allReduce({ send: send.subarray(0, 32), recv: recv.subarray(0, 32), op: "max" });
    const fresh = comm.alloc("int32", ranks);
    await comm.allToAll({ send: fresh, recv: comm.alloc("int32", ranks) });
    await comm.allReduce({ send: new Float64Array(8), op: "avg" });
    await comm.sendRecv({ send, recv, to, from });
    await comm.barrier();
  }
}

console.log(`# ${environmentText(environment())}`);
const world = await createWorld({ backend: sim(), size: ranks });
const held = [];
const began = performance.now();
console.log(`before: ${((await heldBytes()) / 1e6).toFixed(3)} MB`);
for (let slice = 1; slice <= slices; slice++) {
  await world.run((comm) => program(comm, calls / slices));
  held.push(await heldBytes());
  console.log(
    `${((slice * calls) / slices).toFixed(0).padStart(9)} calls: ${(held.at(-1) / 1e6).toFixed(3)} MB`,
  );
}
await world.close();
reportGrowth(`${calls} calls of ${ranks} ranks`, began, "heap", held, noiseBytes);

const resident = [];
const worldsBegan = performance.now();
for (let slice = 1; slice <= slices; slice++) {
  for (let opened = 0; opened < worlds / slices; opened++) await useWorld();
  resident.push(process.memoryUsage.rss());
  const opened = ((slice * worlds) / slices).toFixed(0).padStart(9);
  console.log(`${opened} worlds: ${(resident.at(-1) / 1e6).toFixed(0)} MB resident`);
}
reportGrowth(`${worlds} worlds`, worldsBegan, "resident memory", resident, residentNoiseBytes);

/** A world from its beginning to its end, with 4 MiB a rank in use. */
async function useWorld() {
  const short = await createWorld({ backend: sim(), size: ranks });
  await short.run(async (comm) => {
    const send = comm.alloc("float32", 2 ** 20).fill(1);
    await comm.allReduce({ send, op: "sum" });
    send.dispose();
  });
  await short.close();
}

/** Prints by how much something grew from the second slice to the last, and fails where that is more than noise. */
function reportGrowth(what, beganMs, where, bytes, maxBytes) {
  const seconds = (performance.now() - beganMs) / 1000;
  const grown = bytes.at(-1) - bytes[1];
  console.log(
    `${what} in ${seconds.toFixed(1)} s; the ${where} grew by ${(grown / 1e3).toFixed(0)} kB from the second slice on`,
  );
  if (grown <= maxBytes) return;
  console.log(`MISSED: at most ${maxBytes / 1e3} kB are noise`);
  process.exitCode = 1;
}
