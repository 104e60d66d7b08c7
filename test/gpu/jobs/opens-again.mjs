// Opens the job, sums, and closes, three times over, and another rank is the last to close each time; prints `result {…}`.
import { connect } from "twinccl";
import { backend } from "./backend.mjs";

const sums = [];
for (let restart = 0; restart < 3; restart++) {
  const comm = await connect({ backend: backend(), timeoutMs: 30_000 });
  const send = comm.alloc("float32", 4).fill(comm.rank + 1);
  await comm.allReduce({ send, op: "sum" });
  sums.push([...(await send.toHost())]);
  if (comm.rank === restart % comm.size) await new Promise((resolve) => setTimeout(resolve, 1500));
  await comm.close();
  if (restart === 2) process.stdout.write(`result ${JSON.stringify({ rank: comm.rank, sums })}\n`);
}
