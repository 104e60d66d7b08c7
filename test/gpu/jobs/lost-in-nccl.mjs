// One rank goes wrong inside of NCCL, where the others wait for it: in a call that connects, registers memory or splits.
//   node lost-in-nccl.mjs kill connectInBackground 1      rank 1 is killed there
//   node lost-in-nccl.mjs fail splitInBackground 0        its part fails on rank 0
// Every remaining rank prints `result {…}`: the error of the call, and the sum of the next generation.
import { connect } from "twinccl";
import { nccl } from "twinccl/nccl";
import { loadLibraries } from "../../../dist/backends/nccl/discovery/libraries.js";

const [how, where, victim] = process.argv.slice(2);
const rank = Number(process.env.TWINCCL_RANK);
if (rank === Number(victim)) {
  const { nccl: calls } = await loadLibraries();
  const original = calls[where];
  calls[where] = async () => {
    calls[where] = original;
    // The others are in NCCL by then.
    await new Promise((resolve) => setTimeout(resolve, 300));
    if (how === "kill") process.kill(process.pid, "SIGKILL");
    throw new Error("as planned");
  };
}

const calls = {
  async connectInBackground(comm) {
    const [send, recv] = [comm.alloc("int32", comm.size), comm.alloc("int32", comm.size)];
    await comm.allToAll({ send, recv, timeoutMs: 3000 });
  },
  async registerWindowInBackground(comm) {
    const send = comm.alloc("int32", 1024, { symmetric: true });
    await comm.allReduce({ send, op: "sum", timeoutMs: 3000 });
  },
  async splitInBackground(comm) {
    await comm.split({ color: 0, timeoutMs: 3000 });
  },
};

const comm = await connect({ backend: nccl(), timeoutMs: 60_000 });
const began = performance.now();
const error = await calls[where](comm).then(
  () => undefined,
  (caught) => caught,
);
const { code, ranks, message } = error ?? {};
const result = { rank, code, ranks, message, tookMs: performance.now() - began };
// The others fail at their deadline, if NCCL does not report the fault first: until then they do not rebuild.
if (how === "fail" && rank === Number(victim)) await new Promise((done) => setTimeout(done, 2800));
const next = await comm.rebuild();
const one = next.alloc("int32", 3).fill(rank + 1);
await next.allReduce({ send: one, op: "sum" });
result.sums = Array.from(await one.toHost());
await next.close();
result.at = performance.timeOrigin + performance.now();
process.stdout.write(`result ${JSON.stringify(result)}\n`);
