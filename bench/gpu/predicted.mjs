// What the simulation predicts for rows of the comparison: virtual time of NCCL's plan, nothing runs and nothing is measured.
import { createWorld } from "twinccl";
import { machineProfiles } from "twinccl/algorithms";
import { sim } from "twinccl/sim";

const like = "nccl-2.28";
const topology = "h200x8";

/** The machine of the predicted times, for the document. */
export function modelOf() {
  const { machine, nccl, date, commit } = machineProfiles[topology];
  return { timing: "predicted", like, topology, machine, nccl, profile: `${date} ${commit}` };
}

/** The model in a line. */
export function modelText({ machine, nccl, topology: name, profile }) {
  return `predicted, not measured: the time that NCCL ${nccl} takes on ${machine}, for calls replayed from a recording (profile ${name} of ${profile})`;
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
