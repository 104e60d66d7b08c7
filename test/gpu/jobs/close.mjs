// Rank 0 closes while the others are stuck and make no move; prints `result {…}`. How: `open` with a call of its own under
// way, which they never make, or `idle`.
import { connect } from "twinccl";
import { backend } from "./backend.mjs";

const [how, patience, stuck] = process.argv.slice(2);
const stuckMs = Number(stuck);
const warnings = [];
process.on("warning", ({ name, code }) => warnings.push({ name, code }));

const comm = await connect({ backend: backend(), timeoutMs: Number(patience) });
const send = comm.alloc("float32", 8).fill(1);
await comm.allReduce({ send, op: "sum" });
const result = { rank: comm.rank, warnings };
if (comm.rank === 0) {
  const open = how === "open" ? comm.allReduce({ send, op: "sum" }) : Promise.resolve();
  const settled = open.then(
    () => "done",
    ({ name, code }) => ({ name, code }),
  );
  const began = performance.now();
  const failure = await comm.close().then(
    () => undefined,
    ({ name, code, message }) => ({ name, code, message }),
  );
  Object.assign(result, { failure, tookMs: performance.now() - began, open: await settled });
} else {
  // Nothing of this process runs meanwhile, the event loop included.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, stuckMs);
  await comm.close().catch(() => undefined);
}
process.stdout.write(`result ${JSON.stringify(result)}\n`);
