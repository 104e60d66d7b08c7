// A stream of all-reduces in which ranks are killed, one after the other; the survivors rebuild each time.
//   node lost-ranks.mjs 1,2      kills rank 1 of the first generation, then rank 2 of the first generation
// Every survivor prints `result {…}`: the error of each loss, and its delay.
import { connect } from "twinccl";
import { backend } from "./backend.mjs";

const now = () => performance.timeOrigin + performance.now();
const victims = process.argv[2].split(",").map(Number);
let comm = await connect({ backend: backend(), timeoutMs: 60_000 });
const first = comm.rank;

/** Number of calls in this generation. */
async function healthy() {
  const one = comm.alloc("int32", 3).fill(comm.initialRanks[comm.rank] + 1);
  await comm.allReduce({ send: one, op: "sum" });
  const needed = comm.initialRanks.reduce((sum, initialRank) => sum + initialRank + 1, 0);
  const found = Array.from(await one.toHost());
  if (found.some((value) => value !== needed)) throw new Error(`found ${found}, needs ${needed}`);
  return 1;
}

const losses = [];
/** Calls of this generation before its stream began. */
let made = 0;
for (const victim of victims) {
  made += await healthy();
  const send = comm.alloc("float32", 2 ** 20).fill(0);
  const lost = comm.initialRanks.indexOf(victim);
  // All learn when it happens; clocks of one machine agree.
  const die = comm.alloc("float64", 1).fill(now() + 300);
  await comm.broadcast({ recv: die, root: lost });
  const [dies] = await die.toHost();
  if (first === victim) setTimeout(() => process.kill(process.pid, "SIGKILL"), dies - now());
  made += 1;
  let error;
  while (error === undefined) {
    await comm.allReduce({ send, op: "sum" }).then(
      () => {
        made += 1;
      },
      (caught) => {
        error = caught;
      },
    );
  }
  const { code, collective, call, ranks, message, name } = error;
  const reportedMs = now() - dies;
  const began = performance.now();
  comm = await comm.rebuild({ without: [lost] });
  const completedCalls = made;
  made = await healthy();
  const { generation, size, initialRanks } = comm;
  const rebuilt = { generation, size, initialRanks, tookMs: performance.now() - began };
  losses.push({
    lost,
    name,
    code,
    collective,
    call,
    completedCalls,
    ranks,
    message,
    reportedMs,
    rebuilt,
  });
}
const result = { rank: first, losses };
await comm.close();
process.stdout.write(`result ${JSON.stringify(result)}\n`);
