// Rank 1 starts slowly and is waited for. Then rank 0 starts a process that claims rank 1 too, and one of another job;
// both are refused and the job goes on. Prints `result {…}`.
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { connect } from "twinccl";
import { nccl } from "twinccl/nccl";

const isIntruder = process.argv[2] === "intruder";
const rank = Number(process.env["TWINCCL_RANK"]);
if (isIntruder) {
  const error = await connect({ backend: nccl(), timeoutMs: 5000 }).catch((caught) => caught);
  process.stdout.write(JSON.stringify({ name: error.name, code: error.code }));
  process.exit(0);
}

function intruder(variables) {
  const child = spawn(process.execPath, [fileURLToPath(import.meta.url), "intruder"], {
    env: { ...variables },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  child.stdout.on("data", (chunk) => {
    text += chunk;
  });
  return new Promise((resolve) => {
    child.once("close", () => resolve(text === "" ? "nothing" : JSON.parse(text)));
  });
}

const variables = { ...process.env };
if (rank === 1) await new Promise((resolve) => setTimeout(resolve, 2000));
const comm = await connect({ backend: nccl(), timeoutMs: 60_000 });
const sum = async () => {
  const one = comm.alloc("int32", 1).fill(comm.rank + 1);
  await comm.allReduce({ send: one, op: "sum" });
  return (await one.toHost())[0];
};
const before = await sum();
let refused;
if (rank === 0) {
  refused = await Promise.all([
    intruder({ ...variables, TWINCCL_RANK: "1" }),
    intruder({ ...variables, TWINCCL_JOB_ID: "launch-of-yesterday" }),
  ]);
}
const after = await sum();
await comm.close();
process.stdout.write(`result ${JSON.stringify({ rank, before, after, refused })}\n`);
