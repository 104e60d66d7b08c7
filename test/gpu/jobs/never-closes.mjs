// Opens the job, sums, and ends without closing; prints `result {…}`.
import { connect } from "twinccl";
import { backend } from "./backend.mjs";

const comm = await connect({ backend: backend() });
const send = comm.alloc("float32", 4).fill(comm.rank + 1);
await comm.allReduce({ send, op: "sum" });
const [sum] = await send.toHost();
process.stdout.write(`result ${JSON.stringify({ rank: comm.rank, sum })}\n`);
