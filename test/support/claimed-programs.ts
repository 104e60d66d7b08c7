/** Programs for which the simulation claims NCCL's bits, and the subset that NCCL accepts. */
import {
  communicatorsOf,
  type Program,
  type ProgramCall,
  type ProgramConstraints,
  type ProgramStep,
} from "twinccl/testing";

/**
 * Arbitrary bits where the ranks keep the order of their devices, exact contents elsewhere, and one scalar for all ranks
 * of a pre-multiplied sum.
 */
export const claimedBits: ProgramConstraints = {
  payload: (ranks) => (inDeviceOrder(ranks) ? "bits" : "exact"),
  scalarsDiffer: false,
  symmetric: true,
};

function inDeviceOrder(ranks: readonly number[]): boolean {
  return ranks.every((rank, i) => i === 0 || rank > ranks[i - 1]!);
}

/** The program with sums where NCCL refuses: it has no pre-multiplied sum of 8-bit floats over one rank. */
export function takenByNccl(program: Program): Program {
  const comms = communicatorsOf(program);
  const taken = (call: ProgramCall, comm: number): ProgramCall => {
    if (comms[comm]!.length > 1 || !("op" in call) || typeof call.op !== "object") return call;
    if (!call.dtype.startsWith("float8")) return call;
    const { scalars: _, ...rest } = call;
    return { ...rest, op: "sum" };
  };
  const steps = program.steps.map((step): ProgramStep => {
    if (step.kind === "call") return { ...step, call: taken(step.call, step.comm) };
    return { ...step, calls: step.calls.map((call) => taken(call, step.comm)) };
  });
  return { ...program, steps };
}
