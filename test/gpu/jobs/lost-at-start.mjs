// One rank's start of NCCL goes wrong while the others are in theirs.
//   node lost-at-start.mjs kill 1      rank 1 is killed there
//   node lost-at-start.mjs fail 0      it fails on rank 0, once: all connect again
// Every rank that is left prints `result {…}` and comes to its end, with a start of NCCL that nothing will ever end.
import { connect } from "twinccl";
import { nccl } from "twinccl/nccl";
import { loadLibraries } from "../../../dist/backends/nccl/discovery/libraries.js";

const [how, victim] = process.argv.slice(2);
const rank = Number(process.env.TWINCCL_RANK);
if (rank === Number(victim)) {
  const { nccl: calls } = await loadLibraries();
  const { initRankInBackground } = calls;
  calls.initRankInBackground = async () => {
    calls.initRankInBackground = initRankInBackground;
    // The others are in NCCL by then.
    await new Promise((resolve) => setTimeout(resolve, 300));
    if (how === "kill") process.kill(process.pid, "SIGKILL");
    throw new Error("as planned");
  };
}

const began = performance.now();
const error = await connect({ backend: nccl(), timeoutMs: 60_000 }).then(
  () => undefined,
  (caught) => caught,
);
const { code, ranks, message } = error ?? {};
const result = { rank, code, ranks, message, tookMs: performance.now() - began };
if (how === "fail") {
  const comm = await connect({ backend: nccl(), timeoutMs: 60_000 });
  const one = comm.alloc("int32", 3).fill(rank + 1);
  await comm.allReduce({ send: one, op: "sum" });
  result.sums = Array.from(await one.toHost());
  await comm.close();
}
result.at = performance.timeOrigin + performance.now();
process.stdout.write(`result ${JSON.stringify(result)}\n`);
