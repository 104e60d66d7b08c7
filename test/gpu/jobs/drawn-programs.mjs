// Random programs that all processes of a job draw alike, and what a rank of each held, as plain data.
import fc from "fast-check";
import { communicatorsOf, programs } from "twinccl/testing";

const isInOrder = (ranks) => ranks.every((rank, at) => at === 0 || rank > ranks[at - 1]);

/** NCCL has no pre-multiplied sum of 8-bit floats over one rank. */
function isTaken(program) {
  const comms = communicatorsOf(program);
  return program.steps.every((step) =>
    (step.kind === "call" ? [step.call] : step.calls).every(
      ({ op, dtype }) =>
        comms[step.comm].length > 1 || typeof op !== "object" || !dtype.startsWith("float8"),
    ),
  );
}

/** Arbitrary bits where the simulation claims NCCL's; `exact`: sums that no order changes, in plain memory. */
export function drawnPrograms({ size, seed, runs, exact }) {
  const claimed = {
    payload: (ranks) => (isInOrder(ranks) ? "bits" : "exact"),
    scalarsDiffer: false,
    symmetric: true,
  };
  const constraints = exact ? { payload: "exact", scalarsDiffer: false } : claimed;
  const drawn = programs({ ...constraints, sizes: fc.constant(size), mostSplits: 1 });
  return fc.sample(drawn, { seed, numRuns: runs }).filter(isTaken);
}

const hex = (bytes) => Buffer.from(bytes).toString("hex");
const bytes = (text) => Uint8Array.from(Buffer.from(text, "hex"));

/** Outcomes as they are written to a file, and read from it. */
export const written = (outcomes) =>
  outcomes.map((each) => each && { ...each, sent: hex(each.sent), bytes: hex(each.bytes) });
export const read = (outcomes) =>
  outcomes.map((each) =>
    each === null ? undefined : { ...each, sent: bytes(each.sent), bytes: bytes(each.bytes) },
  );
