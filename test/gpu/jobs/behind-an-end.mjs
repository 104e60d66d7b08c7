// Ranks close or abort a child, then rank 0 makes calls on the world that wait for the others. Prints `result {…}` with the longest
// time that the event loop of rank 0 stood still meanwhile.
import { connect } from "twinccl";
import { nccl } from "twinccl/nccl";

const lateMs = 400;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const comm = await connect({ backend: nccl(), timeoutMs: 60_000 });
const known = comm.alloc("float32", 1024);
await comm.allReduce({ send: known, op: "sum" });
let [longestMs, isWatching, before] = [0, false, performance.now()];
setInterval(() => {
  const now = performance.now();
  if (isWatching) longestMs = Math.max(longestMs, now - before);
  before = now;
}, 1).unref();

/** Two calls at once behind an end: the second one is submitted while the first one waits. */
async function callBehind(end, delayMs) {
  const child = await comm.split({ color: 0 });
  const next = comm.alloc("float32", 16);
  await child.allReduce({ send: child.alloc("float32", 1024), op: "sum" });
  await comm.barrier();
  if (end === "close") await child.close();
  else child.abort(new Error("enough of this"));
  if (delayMs > 0) await pause(delayMs);
  if (comm.rank > 0) await pause(lateMs);
  isWatching = true;
  const first = comm.allReduce({ send: known, op: "sum" });
  await pause(delayMs);
  await comm.allReduce({ send: next, op: "max" });
  await first;
  isWatching = false;
}

for (const end of ["close", "abort"])
  for (const delayMs of [0, 1, 2, 3, 5, 20]) await callBehind(end, delayMs);
await comm.close();
process.stdout.write(`result ${JSON.stringify({ rank: comm.rank, longestMs })}\n`);
