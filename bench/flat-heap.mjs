// A million small calls in one world, in slices: the heap after each, collected, must not grow.
// npm run bench:heap -- --help                         ends with status 1 when it does
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { createWorld } from "twinccl";
import { environment, environmentText } from "twinccl/bench";
import { sim } from "twinccl/sim";
import { options, whole } from "../tools/options.mjs";

const { calls, ranks } = options({
  name: "bench:heap",
  about: "Makes many small calls in one world and sees to it that the heap does not grow.",
  options: {
    calls: { is: whole(1), default: "1000000", help: "in all" },
    ranks: { is: whole(1), default: "8", help: "number of ranks" },
  },
});
const slices = 10;
/** Bytes by which the heap may differ between the second slice and the last: what the runtime itself keeps more or less of. */
const noiseBytes = 512 * 1024;

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
const seconds = (performance.now() - began) / 1000;
const grown = held.at(-1) - held[1];
console.log(
  `${calls} calls of ${ranks} ranks in ${seconds.toFixed(1)} s; the heap grew by ${(grown / 1e3).toFixed(0)} kB from the second slice on`,
);
if (grown > noiseBytes) {
  console.log(`MISSED: at most ${noiseBytes / 1e3} kB are noise`);
  process.exitCode = 1;
}
