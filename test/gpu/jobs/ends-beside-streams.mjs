// Ranks make calls on two communicators with streams of their own in different orders, and close or abort a third one in between, with
// calls under way on it or without. Prints `result {…}` with the sums.
import { connect } from "twinccl";
import { nccl } from "twinccl/nccl";

const comm = await connect({ backend: nccl(), timeoutMs: 30_000 });
const apart = [
  await comm.split({ color: 0, stream: "own" }),
  await comm.split({ color: 0, stream: "own" }),
];
const [first, second] = comm.rank === 0 ? apart : apart.toReversed();
const call = (on) => on.allReduce({ send: comm.alloc("int32", 4).fill(1), op: "sum" });
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const ends = [
  { end: "close" },
  { end: "abort" },
  { end: "abort", isUnderWay: true },
  { end: "abort", isUnderWay: true, stream: "own" },
];
const sums = [];
for (const { end, isUnderWay, stream } of ends) {
  for (const delayMs of [0, 5, 20]) {
    const child = await comm.split({ color: 0, ...(stream && { stream }) });
    const [recv, peer] = [comm.alloc("int32", 4), 1 - comm.rank];
    await comm.barrier();
    // Both ranks wait for a message of the other one.
    const stuck = isUnderWay && child.recv({ recv, peer }).catch(() => {});
    if (isUnderWay) await pause(500);
    const early = call(first);
    if (end === "close") await child.close();
    else child.abort(new Error("enough of this"));
    await stuck;
    await pause(delayMs);
    const late = call(second);
    for (const made of [early, late]) sums.push((await (await made).toHost())[0]);
  }
}
await comm.close();
process.stdout.write(`result ${JSON.stringify({ rank: comm.rank, sums })}\n`);
