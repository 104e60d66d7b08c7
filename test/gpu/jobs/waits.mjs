// All ranks but 0 stay away from a call: first for a while, then for ever. Rank 0 reports its process's work meanwhile,
// and gives the second call up by its signal; all rebuild. Prints `result {…}`.
//   node waits.mjs MILLISECONDS
import { connect } from "twinccl";
import { nccl } from "twinccl/nccl";

const awayMs = Number(process.argv[2]);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let comm = await connect({ backend: nccl(), timeoutMs: 60_000 });
const { rank } = comm;
const reduce = async (options) => {
  const one = comm.alloc("int32", 1).fill(1);
  await comm.allReduce({ send: one, op: "sum", ...options });
  return (await one.toHost())[0];
};
const result = { rank, sums: [await reduce()] };
await comm.barrier();
if (rank > 0) await pause(awayMs);
const [began, before] = [performance.now(), process.cpuUsage()];
result.sums.push(await reduce());
const { user, system } = process.cpuUsage(before);
result.waitedMs = performance.now() - began;
result.busyMs = (user + system) / 1000;
if (rank === 0) {
  const started = performance.now();
  const error = await reduce({ signal: AbortSignal.timeout(300) }).catch((caught) => caught);
  const { name, code, collective, call } = error;
  result.givenUp = { name, code, collective, call, tookMs: performance.now() - started };
  const next = await comm.barrier().catch((caught) => caught);
  result.next = next.code;
} else await pause(1000);
comm = await comm.rebuild();
result.sums.push(await reduce());
await comm.close();
process.stdout.write(`result ${JSON.stringify(result)}\n`);
