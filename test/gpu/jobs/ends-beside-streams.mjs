// Ranks make calls on two communicators with streams of their own in different orders, and close or abort a third one in between.
// Prints `result {…}` with the sums.
import { connect } from "twinccl";
import { nccl } from "twinccl/nccl";

const comm = await connect({ backend: nccl(), timeoutMs: 30_000 });
const apart = [
  await comm.split({ color: 0, stream: "own" }),
  await comm.split({ color: 0, stream: "own" }),
];
const [first, second] = comm.rank === 0 ? apart : apart.toReversed();
const call = (on) => on.allReduce({ send: comm.alloc("int32", 4).fill(1), op: "sum" });
const sums = [];
for (const end of ["close", "abort"]) {
  for (const delayMs of [0, 5, 20]) {
    const child = await comm.split({ color: 0 });
    await comm.barrier();
    const early = call(first);
    if (end === "close") await child.close();
    else child.abort(new Error("enough of this"));
    await new Promise((resolve) => setTimeout(resolve, delayMs));
    const late = call(second);
    for (const made of [early, late]) sums.push((await (await made).toHost())[0]);
  }
}
await comm.close();
process.stdout.write(`result ${JSON.stringify({ rank: comm.rank, sums })}\n`);
