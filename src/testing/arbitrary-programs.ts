/**
 * Whole random programs: healthy ones, over several communicators at once.
 *
 * Shapes are drawn first and fitted to the communicators afterwards, so that shrinking may lower the size, drop splits
 * and calls, and cut counts without leaving the legal programs.
 */
import fc from "fast-check";
import { assertOptions, invalid, type OptionKinds, textOf } from "../api/option-kinds.ts";
import { choices, countsUpTo, dtypesOf, seeds, worldSizes } from "./arbitraries.ts";
import { type CallShape, type FitRules, fittedCall, kindsOfCalls } from "./fit-call.ts";
import {
  communicatorsOf,
  type PayloadClass,
  type Placement,
  type Program,
  type ProgramCall,
  type ProgramSplit,
  type ProgramStep,
  payloadClasses,
} from "./program.ts";
import { assertAllAmong, assertAmong, assertWhole } from "./refuse.ts";

/** The parts that programs may contain. */
export interface ProgramConstraints {
  /**
   * Contents of reductions, also by the world ranks of the communicator, in its order; `exact` when left out. Copies
   * always carry any bits.
   */
  readonly payload?: (PayloadClass | ((ranks: readonly number[]) => PayloadClass)) | undefined;
  /** Now and then buffers in symmetric memory; none when left out. */
  readonly symmetric?: boolean | undefined;
  /** Now and then pre-multiplied sums with scalars that differ by rank; so when left out. */
  readonly scalarsDiffer?: boolean | undefined;
  /** Numbers of ranks; `worldSizes()` when left out. */
  readonly sizes?: fc.Arbitrary<number> | undefined;
  /** Most steps; 4 when left out. */
  readonly mostSteps?: number | undefined;
  /** Most splits; 2 when left out. */
  readonly mostSplits?: number | undefined;
  /** Most elements of a rank's block; 40 when left out. */
  readonly mostElements?: number | undefined;
  /** The calls to draw from; all when left out. */
  readonly kinds?: readonly ProgramCall["kind"][] | undefined;
  /** Single calls, groups, captured calls that are replayed; all when left out. */
  readonly steps?: readonly ProgramStep["kind"][] | undefined;
}

const kinds: OptionKinds<ProgramConstraints> = {
  ...{ payload: true, symmetric: "boolean", scalarsDiffer: "boolean", sizes: true },
  ...{ mostSteps: true, mostSplits: true, mostElements: true, kinds: "array", steps: "array" },
};

interface SplitShape {
  readonly parent: number;
  readonly colors: readonly (number | null)[];
  readonly reversed: boolean;
}

interface StepShape {
  readonly kind: ProgramStep["kind"];
  readonly comm: number;
  readonly times: number;
  readonly calls: readonly CallShape[];
}

/**
 * Programs that every backend must run without an error.
 *
 * @example
 * fc.assert(fc.asyncProperty(programs({ payload: "bits" }), async (program) => { … }));
 */
export function programs(constraints: ProgramConstraints = {}): fc.Arbitrary<Program> {
  assertConstraints(constraints);
  const { payload = "exact", sizes = worldSizes(), mostSteps = 4, mostSplits = 2 } = constraints;
  return fc
    .record({
      size: sizes,
      issue: choices<Program["issue"]>(["each", "together"]),
      splits: fc.array(splitShapes(), { maxLength: mostSplits }),
      steps: fc.array(stepShapes(constraints), { minLength: 1, maxLength: mostSteps }),
    })
    .map(({ size, issue, splits: drawn, steps }) => {
      const splits = fittedSplits(size, drawn);
      const comms = communicatorsOf({ size, splits });
      return { size, issue, splits, steps: steps.map((step) => fittedStep(step, comms, payload)) };
    });
}

function assertConstraints(constraints: ProgramConstraints): void {
  assertOptions("programs", constraints, kinds);
  const { payload = "exact", sizes, kinds: calls, steps } = constraints;
  const { mostSteps = 1, mostSplits = 0, mostElements = 0 } = constraints;
  if (typeof payload !== "function") assertAmong("programs", "payload", payload, payloadClasses);
  assertWhole("programs", "mostSteps", mostSteps, 1);
  assertWhole("programs", "mostSplits", mostSplits, 0);
  assertWhole("programs", "mostElements", mostElements, 0);
  if (calls !== undefined) assertAllAmong("programs", "kinds", calls, kindsOfCalls);
  if (steps !== undefined) assertAllAmong("programs", "steps", steps, [...new Set(usualSteps)]);
  // By what it can do: of a package that is loaded twice there are two classes.
  if (sizes !== undefined && typeof sizes?.generate !== "function") {
    throw invalid(
      "programs",
      "sizes",
      textOf(sizes),
      "an arbitrary of numbers, such as worldSizes()",
    );
  }
}

function splitShapes(): fc.Arbitrary<SplitShape> {
  const drawn = fc.oneof(
    { weight: 5, arbitrary: fc.constantFrom(0, 1, 2) },
    { weight: 1, arbitrary: fc.constant(null) },
  );
  const color = choices([0, 1, 2, null], drawn);
  return fc.record({
    parent: fc.nat({ max: 5 }),
    colors: fc.array(color, { minLength: 1, maxLength: 7 }),
    reversed: fc.boolean(),
  });
}

/** Single calls more often. */
const usualSteps: readonly ProgramStep["kind"][] = ["call", "call", "call", "group", "replay"];

function stepShapes(constraints: ProgramConstraints): fc.Arbitrary<StepShape> {
  const { steps } = constraints;
  const calls = callShapes(constraints);
  return fc.record({
    kind: choices(steps ?? usualSteps),
    comm: fc.nat({ max: 7 }),
    times: fc.integer({ min: 1, max: 3 }),
    calls: fc.array(calls, { minLength: 1, maxLength: 3 }),
  });
}

function callShapes({
  kinds = kindsOfCalls,
  mostElements = 40,
  symmetric = false,
  scalarsDiffer = true,
}: ProgramConstraints): fc.Arbitrary<CallShape> {
  const placements: fc.Arbitrary<Placement> = fc.record({
    form: choices<Placement["form"]>(["apart", "oneBlock", "inPlace"]),
    lead: fc.nat({ max: 3 }),
    tail: fc.nat({ max: 2 }),
    host: fc.boolean(),
    // Drawn only on request, so that seeds of programs without it keep their meaning.
    ...(symmetric && { symmetric: fc.boolean() }),
  });
  return fc.record({
    kind: choices(kinds),
    dtype: dtypesOf(),
    op: choices(["sum", "prod", "min", "max", "avg", "preMul"]),
    scalarsDiffer: scalarsDiffer ? fc.boolean() : fc.constant(false),
    count: countsUpTo({ max: mostElements }),
    root: fc.nat({ max: 16 }),
    give: choices(["exchange", "both"]),
    recv: choices(["allocated", "exact", "longer"]),
    order: choices(["packed", "reversed", "even"]),
    placement: placements,
    seed: seeds(),
  });
}

function fittedSplits(size: number, shapes: readonly SplitShape[]): ProgramSplit[] {
  const splits: ProgramSplit[] = [];
  for (const { parent: drawn, colors: pattern, reversed } of shapes) {
    const comms = communicatorsOf({ size, splits });
    const parent = drawn % comms.length;
    const members = comms[parent] ?? [];
    const colors = members.map((_, rank) => pattern[rank % pattern.length] ?? null);
    splits.push({ parent, colors, reversed });
  }
  return splits;
}

function fittedStep(
  shape: StepShape,
  comms: readonly (readonly number[])[],
  payloadOf: NonNullable<ProgramConstraints["payload"]>,
): ProgramStep {
  const comm = shape.comm % comms.length;
  const { kind, times } = shape;
  const ranks = comms[comm] ?? [];
  const size = ranks.length;
  const payload = typeof payloadOf === "function" ? payloadOf(ranks) : payloadOf;
  assertAmong("programs", "payload", payload, payloadClasses);
  const rules: FitRules = { size, payload, within: kind };
  const calls = shape.calls.map((call) => fittedCall(call, rules));
  const first = calls[0] ?? { kind: "barrier" };
  if (kind === "call") return { kind, comm, call: first };
  return kind === "group" ? { kind, comm, calls } : { kind, comm, calls, times };
}
