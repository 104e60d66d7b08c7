// Opens the job, sums, and ends without closing; prints `result {…}`.
import { connect } from "twinccl";
import { nccl } from "twinccl/nccl";

const comm = await connect({ backend: nccl() });
const send = comm.alloc("float32", 4).fill(comm.rank + 1);
await comm.allReduce({ send, op: "sum" });
const [sum] = await send.toHost();
process.stdout.write(`result ${JSON.stringify({ rank: comm.rank, sum })}\n`);
