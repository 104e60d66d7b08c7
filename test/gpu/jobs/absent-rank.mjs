// The last rank runs on and never connects; the others print `result {…}`.
import { connect } from "twinccl";
import { backend } from "./backend.mjs";

const { TWINCCL_RANK, TWINCCL_SIZE } = process.env;
const timeoutMs = 4000;
if (Number(TWINCCL_RANK) < Number(TWINCCL_SIZE) - 1) {
  const error = await connect({ backend: backend(), timeoutMs }).catch((caught) => caught);
  const { name, code, joined, missing, message } = error;
  const result = { rank: Number(TWINCCL_RANK), name, code, joined, missing, message };
  process.stdout.write(`result ${JSON.stringify(result)}\n`);
} else setTimeout(() => undefined, 2 * timeoutMs);
