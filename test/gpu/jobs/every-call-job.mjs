// One rank of a job that makes every call, holds a barrier and times small calls; prints `result {…}`.
//   node every-call-job.mjs [--nodes 2]
import { connect } from "twinccl";
import { nccl } from "twinccl/nccl";
import { everyCall } from "./every-call.mjs";
import { imitateNodes } from "./imitated-nodes.mjs";

const nodes = imitateNodes();
const now = () => performance.timeOrigin + performance.now();
const comm = await connect({ backend: nccl(), timeoutMs: 60_000 });
const calls = await everyCall(comm, { exact: nodes > 1, symmetric: nodes === 1 });

// Each rank enters later than the one before it.
await comm.barrier();
await new Promise((resolve) => setTimeout(resolve, 60 * comm.rank));
const entered = now();
await comm.barrier();
const left = now();

const small = comm.alloc("uint8", 4096).fill(1);
const times = [];
for (let i = 0; i < 120; i++) {
  const began = performance.now();
  await comm.allReduce({ send: small, op: "max" });
  if (i >= 20) times.push(performance.now() - began);
}
times.sort((a, b) => a - b);
const result = { rank: comm.rank, calls, entered, left, smallMs: times[times.length >> 1] };
await comm.close();
process.stdout.write(`result ${JSON.stringify(result)}\n`);
