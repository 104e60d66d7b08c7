// One rank gives the communicator up while the others wait there for it, without a deadline.
//   node gives-up.mjs abort 1      rank 1 aborts it, and stays
//   node gives-up.mjs close 0      rank 0 closes its end, and leaves
//   node gives-up.mjs rebuild 1    rank 1 joins the next generation, with the others
//   node gives-up.mjs abort 1 recv the others wait for a message of it, not in an all-reduce
// Of three ranks or more, rank 1 makes its call when NCCL may have heard of it already.
// Every other rank prints `result {…}`: the error of its call, and its delay.
import { connect } from "twinccl";
import { backend } from "./backend.mjs";

const [how, victim, call = "allReduce"] = process.argv.slice(2);
const comm = await connect({ backend: backend(), timeoutMs: 60_000 });
const send = comm.alloc("int32", 1024).fill(1);
await comm.allReduce({ send, op: "sum" });
const result = { rank: comm.rank };
let next = comm;
if (comm.rank === Number(victim)) {
  // The others are in NCCL by then.
  await new Promise((resolve) => setTimeout(resolve, 300));
  if (how === "abort") comm.abort(new Error("as planned"));
  // It is neither lost nor gone: the others learn it from its message alone.
  if (how === "abort") await new Promise((resolve) => setTimeout(resolve, 6000));
} else {
  const isLate = comm.size > 2 && comm.rank === 1;
  if (isLate) await new Promise((resolve) => setTimeout(resolve, 1000));
  const began = performance.now();
  const waiting =
    call === "recv"
      ? comm.recv({ recv: send, peer: Number(victim) })
      : comm.allReduce({ send, op: "sum" });
  const error = await waiting.then(
    () => undefined,
    (caught) => caught,
  );
  const { code, ranks, message } = error ?? {};
  Object.assign(result, { code, ranks, message, tookMs: performance.now() - began });
}
if (how === "rebuild") {
  next = await comm.rebuild();
  const one = next.alloc("int32", 1).fill(1);
  await next.allReduce({ send: one, op: "sum" });
  result.sum = (await one.toHost())[0];
}
await next.close();
process.stdout.write(`result ${JSON.stringify(result)}\n`);
