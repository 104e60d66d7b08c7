/** One call, from the state to everything that is shown: planned, run on every executor, filmed. */
import { CommError, createWorld, type Explanation, type HostArray } from "twinccl";
import { sim, Trace } from "twinccl/sim";
import { blockCounts, moves, operatorOf, traits } from "./data/calls.ts";
import { type Film, filmOf } from "./data/film.ts";
import { compare, inputsOf, type Outcome, runOn } from "./data/run.ts";
import { type Structure, structureOf } from "./data/structure.ts";
import { executors, type PageExecutor } from "./executors.ts";
import { isSymmetric, planOptions } from "./plans.ts";
import type { State } from "./state.ts";
import type { Finding } from "./views/verdict.ts";

/** A call that was run. */
export interface CallResult {
  readonly state: State;
  readonly structure: Structure;
  readonly film: Film;
  readonly explanation: Explanation;
  readonly inputs: readonly HostArray[];
  /** The reference first; grows while other executors are at it. */
  readonly outcomes: Outcome[];
}

/** Plans and films a call, with a real run on the reference executor. */
export async function runCall(state: State): Promise<CallResult> {
  const trace = new Trace();
  const inputs = inputsOf(state);
  const [reference] = executors;
  // Before anything else, because it is the call itself that says best why it is refused.
  const outcome = await runOn((reference as PageExecutor).executor, state, inputs, trace);
  const structure = structureOf(state);
  const film = filmOf(state, structure, trace.messages());
  const explanation = await explained(state);
  return { state, structure, film, explanation, inputs, outcomes: [outcome] };
}

/** Runs the call on the other executors, one after another, and reports each result as soon as it is known. */
export async function compareAll(
  result: CallResult,
  report: (findings: readonly Finding[], details: ReadonlyMap<string, string>) => void,
): Promise<void> {
  const { state, inputs, outcomes } = result;
  const reference = outcomes[0] as Outcome;
  const findings: Finding[] = executors.map(
    ({ name }, i): Finding =>
      i === 0
        ? { kind: "reference", executor: name, outcome: reference }
        : { kind: "running", executor: name },
  );
  const details = new Map<string, string>();
  report(findings, details);
  for (const [i, each] of executors.entries()) {
    if (i === 0) continue;
    findings[i] = await runOnExecutor(each, state, inputs, reference, outcomes, details);
    report(findings, details);
  }
}

async function runOnExecutor(
  each: PageExecutor,
  state: State,
  inputs: readonly HostArray[],
  reference: Outcome,
  outcomes: Outcome[],
  details: Map<string, string>,
): Promise<Finding> {
  const { name: executor } = each;
  try {
    const { ok, reason } = await each.probe();
    if (!ok) return { kind: "missing", executor, reason };
    details.set(executor, reason);
    const outcome = await runOn(each.executor, state, inputs);
    outcomes.push(outcome);
    const comparison = compare(reference, outcome, state.dtype);
    return { kind: "compared", executor, outcome, comparison };
  } catch (error) {
    return { kind: "failed", executor, reason: faultText(error) };
  }
}

/** The explanation of the call. */
async function explained(state: State): Promise<Explanation> {
  const { collective, ranks, dtype, count, root } = state;
  const { reduces, rooted } = traits(state);
  const link = { latencyNs: state.latency, gigabytesPerSecond: state.bandwidth };
  const world = await createWorld({ backend: sim({ ...planOptions(state), link }), size: ranks });
  try {
    return world.explain({
      collective,
      ...(moves(state) ? { dtype, count } : {}),
      ...(reduces ? { op: operatorOf(state) } : {}),
      ...(rooted ? { root } : {}),
      counts: blockCounts(state),
      symmetric: isSymmetric(state),
    });
  } finally {
    await world.close();
  }
}

/** The first line of what went wrong, and the hint. */
export function faultText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const inner = error.cause instanceof CommError ? error.cause : error;
  const lines = inner.message.split("\n");
  const hint = lines.find((line) => line.startsWith("hint: "));
  return [lines[0] ?? "", ...(hint === undefined ? [] : [hint])].join("; ");
}
