// Rank 1 makes no call in time, all rebuild, and what belongs to the last generation is refused; prints `result {…}`.
import { connect } from "twinccl";
import { backend } from "./backend.mjs";

const codeOf = (operation) =>
  operation.then(
    () => "fine",
    ({ code }) => code,
  );
const sum = async (comm) => {
  const one = comm.alloc("int32", 1).fill(1);
  await comm.allReduce({ send: one, op: "sum" });
  return (await one.toHost())[0];
};

const comm = await connect({ backend: backend(), timeoutMs: 60_000 });
const before = await sum(comm);
let late;
if (comm.rank === 1) await new Promise((resolve) => setTimeout(resolve, 1500));
else {
  const send = comm.alloc("float32", 8);
  const began = performance.now();
  const error = await comm.allReduce({ send, op: "sum", timeoutMs: 400 }).catch((caught) => caught);
  const { code, collective, call, ranks, message } = error;
  late = { code, collective, call, ranks, message, tookMs: performance.now() - began };
}
const second = await comm.rebuild();
const again = await sum(second);
const sub = await second.split({ color: 0 });
const buffer = second.alloc("int32", 4);
const third = await second.rebuild();
const stale = [
  await codeOf(second.barrier()),
  await codeOf(sub.barrier()),
  await codeOf(third.allReduce({ send: buffer, op: "sum" })),
  await codeOf(third.allReduce({ send: third.alloc("int32", 4), recv: buffer, op: "sum" })),
];
const result = {
  rank: third.rank,
  late,
  sums: [before, again, await sum(third)],
  generations: [comm.generation, second.generation, third.generation],
  stale,
};
await third.close();
process.stdout.write(`result ${JSON.stringify(result)}\n`);
