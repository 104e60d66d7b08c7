// What the simulation predicts for rows of the comparison: virtual time of NCCL's plan, nothing runs and nothing is measured.
import { createWorld } from "twinccl";
import { linkOf } from "twinccl/algorithms";
import { sim } from "twinccl/sim";

const like = "nccl-2.28";
const topology = "h200x8";

/** The machine of the predicted times, for the document. */
export function modelOf() {
  const { latencyPs, gigabytesPerSecond } = linkOf();
  return {
    ...{ timing: "predicted", like, topology },
    ...{ latency_ns: latencyPs / 1000, gigabytes_per_second: gigabytesPerSecond },
  };
}

/** The model in a line. Kernels take time to start, on GPUs: the smaller a call, the more of its time that is. */
export function modelText({ latency_ns: latencyNs, gigabytes_per_second: speed }) {
  return `predicted, not measured: virtual time of ${like}'s plans on ${topology}, links of ${speed} GB/s and ${latencyNs} ns, kernels start in no time`;
}

/** The question that a row's calls are the answer to. */
function questionOf({ collective, count, traffic }) {
  const reduces = collective === "allReduce" || collective === "reduceScatter";
  return {
    ...{ collective, dtype: "float32" },
    ...(reduces && { op: "sum" }),
    ...(collective === "broadcast" && { root: 0 }),
    ...(traffic.length === 0 ? { count } : { counts: traffic }),
  };
}

/** The rows, eager ones with `predicted_us`; `not_predicted` says why there are none. */
export async function predict(rows, ranks) {
  let world;
  try {
    // Sizes alone make the plan, and its time.
    const backend = sim({ phantom: true, like, topology });
    world = await createWorld({ backend, size: ranks });
  } catch (error) {
    return { rows, not_predicted: error.message.split("\n")[0] };
  }
  try {
    const predicted = [];
    for (const row of rows) {
      if (row.mode !== "eager") predicted.push(row);
      else {
        const timeNs = await world.estimate(questionOf(row));
        predicted.push({ ...row, predicted_us: timeNs / 1000 });
      }
    }
    return { rows: predicted };
  } finally {
    await world.close();
  }
}
