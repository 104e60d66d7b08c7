/**
 * Whole random programs: healthy ones, over several communicators at once.
 *
 * Shapes are drawn first and fitted to the communicators afterwards. Shrinking may therefore lower the size, drop splits and
 * calls, and cut counts, and the program stays legal.
 */
import fc from "fast-check";
import { bytesOf, type DType, dtypeInfo, type ReduceOp } from "../api/index.ts";
import { assertOptions, invalid, type OptionKinds, textOf } from "../api/option-kinds.ts";
import { choices, countsUpTo, dtypesOf, scalarsOf, seeds, worldSizes } from "./arbitraries.ts";
import { assertAllAmong, assertAmong, assertWhole } from "./argument-checks.ts";
import { randomWords } from "./element-bits.ts";
import {
  type BlockOrder,
  communicatorsOf,
  type FoldingCall,
  type PayloadClass,
  type Placement,
  type Program,
  type ProgramCall,
  type ProgramDataCall,
  type ProgramSplit,
  type ProgramStep,
  payloadClasses,
} from "./program.ts";

/** The parts that programs may contain. */
export interface ProgramConstraints {
  /**
   * Contents of reductions, also by the world ranks of the communicator, in its order; `exact` when left out. Copies
   * always carry any bits.
   */
  readonly payload?: (PayloadClass | ((ranks: readonly number[]) => PayloadClass)) | undefined;
  /** Sometimes buffers in symmetric memory; none by default. */
  readonly symmetric?: boolean | undefined;
  /** Sometimes pre-multiplied sums with scalars that differ by rank; the default. */
  readonly scalarsDiffer?: boolean | undefined;
  /** Numbers of ranks; `worldSizes()` when left out. */
  readonly sizes?: fc.Arbitrary<number> | undefined;
  /** Most steps; 4 when left out. */
  readonly maxSteps?: number | undefined;
  /** Most splits; 2 when left out. */
  readonly maxSplits?: number | undefined;
  /** Most elements of a rank's block; 40 when left out. */
  readonly maxElements?: number | undefined;
  /** The calls to draw from; all when left out. */
  readonly kinds?: readonly ProgramCall["kind"][] | undefined;
  /** Single calls, groups, captured calls that are replayed; all when left out. */
  readonly steps?: readonly ProgramStep["kind"][] | undefined;
}

const kinds: OptionKinds<ProgramConstraints> = {
  ...{ payload: true, symmetric: "boolean", scalarsDiffer: "boolean", sizes: true },
  ...{ maxSteps: true, maxSplits: true, maxElements: true, kinds: "array", steps: "array" },
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
  const { payload = "exact", sizes = worldSizes(), maxSteps = 4, maxSplits = 2 } = constraints;
  return fc
    .record({
      size: sizes,
      issue: choices<Program["issue"]>(["each", "together"]),
      splits: fc.array(splitShapes(), { maxLength: maxSplits }),
      steps: fc.array(stepShapes(constraints), { minLength: 1, maxLength: maxSteps }),
    })
    .map(({ size, issue, splits: drawn, steps }) => {
      assertWhole("programs", "sizes", size, 1);
      const splits = fittedSplits(size, drawn);
      const comms = communicatorsOf({ size, splits });
      return { size, issue, splits, steps: steps.map((step) => fittedStep(step, comms, payload)) };
    });
}

function assertConstraints(constraints: ProgramConstraints): void {
  assertOptions("programs", constraints, kinds);
  const { payload = "exact", sizes, kinds: calls, steps } = constraints;
  const { maxSteps = 1, maxSplits = 0, maxElements = 0 } = constraints;
  if (typeof payload !== "function") assertAmong("programs", "payload", payload, payloadClasses);
  assertWhole("programs", "maxSteps", maxSteps, 1);
  assertWhole("programs", "maxSplits", maxSplits, 0);
  assertWhole("programs", "maxElements", maxElements, 0);
  if (calls !== undefined) assertAllAmong("programs", "kinds", calls, kindsOfCalls);
  if (steps !== undefined) assertAllAmong("programs", "steps", steps, [...new Set(usualSteps)]);
  // Checked by methods, because a package loaded twice has two classes.
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

/** Single calls are more frequent. */
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
  maxElements = 40,
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
    count: countsUpTo({ max: maxElements }),
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

/** A call before it is fitted. */
interface CallShape {
  readonly kind: ProgramCall["kind"];
  readonly dtype: DType;
  readonly op: string;
  readonly scalarsDiffer: boolean;
  readonly count: number;
  readonly root: number;
  readonly give: "exchange" | "both";
  readonly recv: "allocated" | "exact" | "longer";
  readonly order: BlockOrder | "even";
  readonly placement: Placement;
  readonly seed: number;
}

/** The place of a call in its program. */
interface FitRules {
  readonly size: number;
  readonly payload: PayloadClass;
  readonly within: "call" | "group" | "replay";
}

/** Every kind of call. */
const kindsOfCalls: readonly ProgramCall["kind"][] = [
  "allReduce",
  "reduce",
  "broadcast",
  "allGather",
  "allGatherv",
  "reduceScatter",
  "reduceScatterv",
  "allToAll",
  "allToAllv",
  "gather",
  "scatter",
  "sendRecv",
  "pair",
  "barrier",
];

/** Collectives that have kernels for symmetric memory, with buffers of equal length on every rank. */
const symmetricKinds: readonly string[] = ["allReduce", "reduceScatter", "allGather"];

/** A legal call. */
function fittedCall(drawn: CallShape, rules: FitRules): ProgramCall {
  const shape = fittedToMemory(drawn);
  const { kind, dtype, count, seed, placement } = shape;
  const { size, payload } = rules;
  const data = { dtype, payload, seed, placement };
  const root = shape.root % size;
  const next = randomWords(seed ^ 0x1b873593);
  const block = Math.ceil(count / 4);
  const order = shape.order === "reversed" ? "reversed" : "packed";
  const counts = (): number[] =>
    Array.from({ length: size }, () => (next() % 4 === 0 ? 0 : next() % (block + 1)));
  switch (kind) {
    case "barrier":
      return { kind };
    case "broadcast":
      return { ...data, kind, count, root };
    case "allGather":
    case "allToAll":
      return { ...data, kind, count: block };
    case "allGatherv":
      return { ...data, kind, counts: counts(), order };
    case "gather":
    case "scatter": {
      const even = shape.order === "even";
      return {
        ...data,
        kind,
        root,
        order: shape.order,
        counts: even ? all(size, block) : counts(),
      };
    }
    case "allToAllv":
      return { ...data, kind, ...exchangeOf(shape, rules, next), order };
    case "pair":
    case "sendRecv":
      return transferOf(shape, rules, next);
    case "allReduce":
      return { ...data, kind, count, ...operatorOf(shape, rules) };
    case "reduce":
      return { ...data, kind, count, root, ...operatorOf(shape, rules) };
    case "reduceScatter":
      return { ...data, kind, count: block, ...operatorOf(shape, rules) };
    case "reduceScatterv":
      return { ...data, kind, counts: counts(), ...operatorOf(shape, rules) };
  }
}

/**
 * Symmetric memory only for collectives that use it, with a multiple of four elements: NCCL's results are undefined for narrow
 * ones off a word's start. Kernels read other ranks' contributions directly, so all scalars are the same.
 */
function fittedToMemory(shape: CallShape): CallShape {
  const { symmetric, ...placement } = shape.placement;
  if (symmetric !== true || !symmetricKinds.includes(shape.kind)) return { ...shape, placement };
  const inFours = { ...placement, lead: 4 * placement.lead, symmetric, host: false };
  const blockInFours = shape.kind === "allReduce" ? 4 : 16;
  return {
    ...shape,
    placement: inFours,
    count: blockInFours * Math.ceil(shape.count / blockInFours),
    scalarsDiffer: false,
  };
}

function all(size: number, count: number): number[] {
  return new Array<number>(size).fill(count);
}

/** Uneven counts with many zeros; calls that exchange counts cannot be in a group or capture. */
function exchangeOf(
  { give, recv }: CallShape,
  { size, within }: FitRules,
  next: () => number,
): Pick<ProgramDataCall & { kind: "allToAllv" }, "counts" | "give" | "recv"> {
  const fullness = next() % 5;
  const counts = Array.from({ length: size }, () =>
    Array.from({ length: size }, () => (next() % 4 < fullness ? next() % 6 : 0)),
  );
  if (within === "call") return { counts, give, recv };
  return { counts, give: "both", recv: recv === "allocated" ? "exact" : recv };
}

/** A send and a receive of two ranks, or a permutation of all; captured calls are the same on every rank. */
function transferOf(
  { kind, dtype, count, seed, placement, root }: CallShape,
  { size, payload, within }: FitRules,
  next: () => number,
): ProgramCall {
  const data = { dtype, payload, seed, placement, count };
  if (kind === "pair" && within !== "replay" && size > 1) {
    const from = root % size;
    return { ...data, kind, from, to: (from + 1 + (next() % (size - 1))) % size };
  }
  const to = Array.from({ length: size }, (_, rank) => rank);
  for (let last = size - 1; last > 0; last--) {
    const other = next() % (last + 1);
    [to[last], to[other]] = [to[other] ?? 0, to[last] ?? 0];
  }
  return { ...data, kind: "sendRecv", to };
}

/** The drawn operator, or a sum where it would not be exact. */
function operatorOf(
  { op, dtype, scalarsDiffer, seed }: CallShape,
  { size, payload }: FitRules,
): Pick<FoldingCall, "op" | "scalars"> {
  const isFloat = dtypeInfo[dtype].kind === "float";
  const rounds = op === "avg" && payload === "exact" && isFloat;
  if (rounds && !Number.isInteger(Math.log2(size))) return { op: "sum" };
  if (op !== "preMul") return { op: op as ReduceOp };
  const list = scalarsOf(dtype, payload);
  const pick = (at: number): number | bigint => list[at % list.length] ?? 1;
  // Scalars that differ by rank would need more digits than a narrow float has for its exact sums.
  const narrow = payload === "exact" && isFloat && bytesOf(dtype) < 4;
  if (!scalarsDiffer || narrow) return { op: { preMul: pick(seed) } };
  const scalars = Array.from({ length: size }, (_, rank) => pick(seed + 3 * rank));
  return { op: { preMul: scalars[0] ?? 1 }, scalars };
}
