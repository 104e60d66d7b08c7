/**
 * The duties of every backend, as cases for any test runner.
 *
 * Ranks may live in one process or in processes of their own: they do the named parts of `parts.ts`, and their results are
 * judged here, by oracles and by the contract, never by a backend. Nothing is skipped.
 */
import fc from "fast-check";
import type { Capabilities } from "../../api/backend-entry.ts";
import {
  type DType,
  dtypes,
  namedReduceOps,
  type Question,
  type ReduceOp,
} from "../../api/index.ts";
import {
  assertOptions,
  textOf as foundText,
  invalid,
  type OptionKinds,
} from "../../api/option-kinds.ts";
import { programs } from "../arbitrary-programs.ts";
import type { RankOutcome } from "../call-execution.ts";
import { bytesFromBits, isFloat } from "../oracle/elements.ts";
import { judgeRun } from "../oracle/judge.ts";
import { sumInOrder } from "../oracle/order.ts";
import { oracleScalar } from "../oracle/rounding.ts";
import type { Program, ProgramCall, ProgramStep } from "../program.ts";
import { gatherRun } from "../run-program.ts";
import {
  callsByDuty,
  copyCalls,
  explainedCalls,
  mixedCalls,
  questionOf,
  reduceCall,
  reduceCalls,
  roundedCalls,
  withArrays,
} from "./calls.ts";
import { expectEqual, expectTrue, textOf } from "./expectations.ts";
import { judgeFolds } from "./folds.ts";
import {
  type ConformanceParts,
  filledWith,
  healthyAmong,
  type PartArguments,
  type PartResult,
  valuesThatRound,
} from "./parts.ts";
import { judgePlan } from "./plans.ts";

/** One case of the conformance suite. */
export interface ConformanceCase {
  /** The duty, as a statement without its subject. */
  readonly name: string;
  /** Rejects with the first fault. */
  run(): Promise<void>;
}

/** The ranks of one communicator, in this process or in others. */
export interface ConformanceRanks {
  readonly size: number;
  /** Runs a part on every rank; returns the results by rank. Rejects when a rank fails or takes too long. */
  each<N extends keyof ConformanceParts>(
    part: N,
    ...args: PartArguments<ConformanceParts[N]>
  ): Promise<PartResult<ConformanceParts[N]>[]>;
}

/** Opens ranks, or takes those that are open, and has them used alone. */
export type UseRanks = <T>(
  size: number,
  use: (ranks: ConformanceRanks) => Promise<T>,
) => Promise<T>;

/** Claims about a backend under test, wherever its ranks live. */
export interface ConformanceClaims {
  /** Numbers of ranks that can be opened; at least one. */
  readonly sizes: readonly number[];
  readonly capabilities: Capabilities;
  /** All ranks use one device; each has its own when left out. */
  readonly sharesDevice?: boolean | undefined;
  /** False where floats are not folded in the order that `explain` gives. */
  readonly foldsAsExplained?: boolean | undefined;
}

/** A backend under test, and the way to its ranks. */
export interface RanksUnderTest extends ConformanceClaims {
  /** Name of the backend, as it gives it. */
  readonly backend: string;
  readonly use: UseRanks;
  /** The same with calls that are compared before they run, where it is an option. */
  readonly useCompared?: UseRanks | undefined;
}

const kinds: OptionKinds<RanksUnderTest> = {
  ...{ backend: true, capabilities: true, sizes: true, use: "function", useCompared: "function" },
  ...{ sharesDevice: "boolean", foldsAsExplained: "boolean" },
};

/**
 * The cases of a backend with ranks that may live in processes of their own. Each process runs `conformanceParts` by name on its
 * communicator.
 *
 * @throws InvalidArgumentError for options that make no sense.
 * @example
 * for (const each of conformanceOfRanks({ backend: "mine", sizes: [2], capabilities, use })) test(each.name, each.run);
 */
export function conformanceOfRanks(subject: RanksUnderTest): readonly ConformanceCase[] {
  assertOptions("conformanceOfRanks", subject, kinds);
  const { backend, use } = subject;
  if (typeof backend !== "string" || backend === "") {
    throw invalid("conformanceOfRanks", "backend", foundText(backend), "the name of the backend");
  }
  if (use === undefined) throw invalid("conformanceOfRanks", "use", "undefined", "a function");
  assertClaims("conformanceOfRanks", subject);
  const cases: Record<string, () => Promise<void>> = {
    ...factsOf(subject),
    ...resultsOf(subject),
    ...programsOf(subject),
    ...orderOf(subject),
    ...endsOf(subject),
    ...plansOf(subject),
  };
  return Object.entries(cases).map(([name, run]) => ({ name, run }));
}

/** Refuses numbers of ranks and capabilities that are none. */
export function assertClaims(
  subject: string,
  { sizes, capabilities }: Partial<ConformanceClaims>,
): void {
  const isSize = (size: unknown): boolean => Number.isSafeInteger(size) && (size as number) > 0;
  if (!Array.isArray(sizes) || sizes.length === 0 || !sizes.every(isSize)) {
    throw invalid(subject, "sizes", foundText(sizes), "an array of numbers of ranks");
  }
  if (typeof capabilities !== "object" || capabilities === null) {
    const needs = "the capabilities that the backend declares";
    throw invalid(subject, "capabilities", foundText(capabilities), needs);
  }
}

type Cases = Record<string, () => Promise<void>>;

const operators: readonly ReduceOp[] = [...namedReduceOps, { preMul: 2 }];

function minSizeOf({ sizes }: ConformanceClaims): number {
  return Math.min(...sizes);
}

function maxSizeOf({ sizes }: ConformanceClaims): number {
  return Math.max(...sizes);
}

function factsOf(subject: RanksUnderTest): Cases {
  const { backend, capabilities, sizes, sharesDevice = false, use } = subject;
  return {
    "opens with its name and the capabilities it declares": () =>
      use(minSizeOf(subject), async (ranks) => {
        const found = await ranks.each("backendFacts");
        expectEqual("by rank", found, sameOn(ranks, { backend, capabilities }));
      }),
    "gives ranks, sizes and devices": async () => {
      for (const size of sizes) {
        await use(size, async (ranks) => {
          const places = await ranks.each("placement");
          const numbers = Array.from({ length: size }, (_, rank) => rank);
          expectEqual(
            "ranks",
            places.map(({ rank }) => rank),
            numbers,
          );
          expectEqual(
            "sizes",
            places.map((place) => place.size),
            sameOn(ranks, size),
          );
          const devices = new Set(places.map(({ device }) => device));
          expectEqual("number of devices", devices.size, sharesDevice ? 1 : size);
        });
      }
    },
  };
}

function resultsOf({ sizes, capabilities, use }: RanksUnderTest): Cases {
  const onAllSizes = (run: (size: number) => Promise<void>) => async (): Promise<void> => {
    for (const size of sizes) await run(size);
  };
  const cases: Cases = {};
  for (const [duty, callsOf] of Object.entries(callsByDuty)) {
    cases[duty] = onAllSizes((size) =>
      use(size, (ranks) => judgeSupported(ranks, "each", callsOf(size))),
    );
  }
  if (capabilities.hostArrays) {
    cases["takes TypedArrays in place of buffers"] = onAllSizes((size) => {
      const calls = Object.values(callsByDuty).flatMap((callsOf) => callsOf(size));
      return use(size, (ranks) => judgeSupported(ranks, "each", calls.map(withArrays)));
    });
  }
  return {
    "reduces exact payloads for every dtype and operator": onAllSizes((size) =>
      use(size, async (ranks) => {
        for (const dtype of dtypes) {
          const calls = operators.flatMap((op, at) => reduceCalls(dtype, op, 13 + at, at, size));
          await judgeSupported(ranks, "together", calls);
        }
      }),
    ),
    "copies bytes, NaN payloads included, for every dtype": onAllSizes((size) =>
      use(size, async (ranks) => {
        for (const [at, dtype] of dtypes.entries()) {
          await judgeSupported(ranks, "each", copyCalls(dtype, size, at));
        }
      }),
    ),
    "accepts counts of zero, one, and less than the number of ranks": onAllSizes((size) =>
      use(size, async (ranks) => {
        for (const count of [0, 1, size - 1, size, size + 1]) {
          const calls = (["sum", "max"] as const).map((op) =>
            reduceCall("int32", op, count, count, size),
          );
          await judgeSupported(ranks, "each", calls);
        }
      }),
    ),
    ...cases,
  };
}

/** Programs of more than single calls. */
function programsOf({ sizes, use }: RanksUnderTest): Cases {
  const each = (stepsOf: (size: number) => Pick<Program, "steps" | "splits">) => async () => {
    for (const size of sizes) {
      const program: Program = { size, issue: "each", ...stepsOf(size) };
      await use(size, (ranks) => judgeSupportedPart(ranks, program));
    }
  };
  return {
    "runs the calls of a group at once": each((size) => {
      return { splits: [], steps: [{ kind: "group", comm: 0, calls: mixedCalls(size, 1) }] };
    }),
    "replays recorded calls with new contents": each((size) => {
      const calls = mixedCalls(size, 2);
      return { splits: [], steps: [{ kind: "replay", comm: 0, calls, times: 3 }] };
    }),
    "runs calls of the communicators of a split, in the order of its keys": each((size) => {
      const colors = Array.from({ length: size }, (_, rank) => rank % 2);
      const parts = [0, 1].map((color) => colors.filter((each) => each === color).length);
      const steps = parts.flatMap((members, color): ProgramStep[] =>
        members === 0
          ? []
          : mixedCalls(members, color).map((call) => ({ kind: "call", comm: 1 + color, call })),
      );
      return { splits: [{ parent: 0, colors, reversed: true }], steps };
    }),
    "runs whole programs, with every collective, form and placement": async () => {
      const drawn = programs({ sizes: fc.constantFrom(...sizes), maxElements: 20 });
      const all = fc.sample(drawn, { seed: 1, numRuns: 60 });
      for (const size of sizes) {
        await use(size, async (ranks) => {
          for (const program of all) {
            if (program.size === size) await judgeSupportedPart(ranks, program);
          }
        });
      }
    },
  };
}

function orderOf(subject: RanksUnderTest): Cases {
  const { sizes, capabilities, use } = subject;
  const [least, most] = [minSizeOf(subject), maxSizeOf(subject)];
  const cases: Cases = {
    "holds every rank at a barrier until the last one arrives": async () => {
      for (const size of sizes) {
        await use(size, async (ranks) => {
          const times = await ranks.each("barrier");
          for (const [rank, { left }] of times.entries()) {
            const early = times.filter(({ entered }) => entered > left);
            expectEqual(`ranks that came after rank ${rank} had left`, early, []);
          }
        });
      }
    },
    "runs calls in order, also when they are awaited later": () =>
      use(most, async (ranks) => {
        const needed = sameOn(ranks, [(most ** 4) | 0]);
        expectEqual("contents", await ranks.each("callsInOrder"), needed);
      }),
    "reads the contents at the call, not those written later": () =>
      use(least, async (ranks) => {
        const needed = [
          [1, 1, 1],
          [2, 2, 2],
          [3, 4, 5],
        ];
        expectEqual("contents", await ranks.each("earlyReads"), sameOn(ranks, needed));
      }),
    "fills, writes and reads parts of a buffer": () =>
      use(least, async (ranks) => {
        const part = [2.7, 3, 4.5, 2.7].map(Math.fround);
        const edge = Math.fround(0.1);
        const needed = [[edge, edge, ...part, edge, edge], part];
        expectEqual("contents", await ranks.each("views"), sameOn(ranks, needed));
        for (const [rank, filled] of (await ranks.each("fills")).entries()) {
          for (const [at, dtype] of dtypes.entries()) {
            const bytes = filledBytes(dtype, filledWith[dtype]);
            expectEqual(`bytes of ${dtype} on rank ${rank}`, filled[at], bytes);
          }
        }
      }),
    "gives new memory of zeros, where no other memory is, and takes it back behind its calls": () =>
      use(least, async (ranks) => {
        for (const [rank, { set, live, copied }] of (await ranks.each("newMemory")).entries()) {
          expectEqual(`a copy of memory that was given back on rank ${rank}`, copied, [7]);
          expectEqual(`bytes that are not 0 on rank ${rank}`, set, new Array(12).fill(0));
          const sorted = [...live].sort((a, b) => (a.ptr < b.ptr ? -1 : 1));
          for (const [at, { ptr, bytes }] of sorted.slice(0, -1).entries()) {
            const next = sorted[at + 1]?.ptr as bigint;
            const what = `${bytes} bytes at ${ptr} on rank ${rank} end before those at ${next}`;
            expectTrue(what, ptr + BigInt(bytes) <= next);
          }
        }
      }),
    "gives the same bits in every run": () =>
      use(most, async (ranks) => {
        const [first = [], ...others] = await ranks.each("roundedSum");
        for (const other of others) expectEqual("bits of another rank", other, first);
        expectEqual("bits of another run", await ranks.each("roundedSum"), sameOn(ranks, first));
      }),
  };
  if (capabilities.virtualTime)
    cases["counts virtual time, which passes"] = () => use(most, judgeTimes);
  if (capabilities.ownStreams !== true) return cases;
  cases["runs calls on streams of their own as on those of the ranks"] = () =>
    use(most, async (ranks) => {
      const sums = await ranks.each("ownStreams");
      const shared = sums[0]?.[0];
      expectEqual("bits by rank and call", sums, sameOn(ranks, new Array(5).fill(shared)));
      await expectHealthy(ranks);
    });
  return cases;
}

/** The bytes of an element that is filled with a value: an integer, or the nearest float. */
function filledBytes(dtype: DType, value: number | bigint): number[] {
  const bits = isFloat(dtype) ? oracleScalar(dtype, { preMul: value }, 1) : BigInt(value);
  return Array.from(bytesFromBits(dtype, [bits]));
}

/** Virtual times never decrease; messages and `work` take some. */
async function judgeTimes(ranks: ConformanceRanks): Promise<void> {
  for (const [rank, times] of (await ranks.each("virtualTimes")).entries()) {
    const [first = Number.NaN, summed = Number.NaN, worked = Number.NaN] = times;
    const what = `on rank ${rank}, ${textOf(times)} ns`;
    expectTrue(`${what} are times of at least 0`, times.every(Number.isFinite) && first >= 0);
    const sorted = [...times].sort((a, b) => a - b);
    expectEqual(`times in order ${what}`, times, sorted);
    if (ranks.size > 1) expectTrue(`a sum takes time ${what}`, summed > first);
    expectTrue(`work of 1000 ns takes as long ${what}`, worked >= summed + 1000);
  }
}

function endsOf(subject: RanksUnderTest): Cases {
  const { use, useCompared = use } = subject;
  const [least, most] = [minSizeOf(subject), maxSizeOf(subject)];
  return {
    "refuses wrong arguments on the rank that gives them": () =>
      use(least, async (ranks) => {
        const codes = await ranks.each("wrongArguments");
        expectEqual("codes", codes, sameOn(ranks, new Array(6).fill("ERR_COMM_ARG")));
        await expectHealthy(ranks);
      }),
    "rejects calls that differ between ranks, writes nothing, and continues": async () => {
      if (most === 1) return;
      await useCompared(most, async (ranks) => {
        // Of two ranks the first one's value is the norm.
        const facts = { code: "ERR_COMM_MISMATCH", field: "count", ranks: [1] };
        // Nothing was written: the same memory has the right sum next.
        const held = [new Array(8).fill(3 * most), [0]];
        const needed = sameOn(ranks, { ...facts, held });
        expectEqual("errors", await ranks.each("countMismatch"), needed);
        await expectHealthy(ranks);
      });
    },
    "replays a recording until it is disposed, and refuses it then": () =>
      use(most, async (ranks) => {
        const sum = most ** 2;
        const needed = { disposed: true, code: "ERR_COMM_CLOSED", held: [sum, sum] };
        expectEqual("replays", await ranks.each("replays"), sameOn(ranks, needed));
        await expectHealthy(ranks);
      }),
    "closes a communicator permanently": () =>
      use(least, async (ranks) => {
        const codes = await ranks.each("closeTwice");
        expectEqual("codes", codes, sameOn(ranks, "ERR_COMM_CLOSED"));
        await expectHealthy(ranks);
      }),
    "ends the open calls of an aborted communicator, and no others": () =>
      use(most, async (ranks) => {
        for (const [rank, { sum, barrier, held }] of (await ranks.each("aborts")).entries()) {
          // It may be complete before the abort.
          const isEnded = ["it was taken", "ERR_COMM_ABORTED"].includes(sum);
          expectTrue(`rank ${rank}: the sum ends, or is aborted: ${sum}`, isEnded);
          expectEqual(`rank ${rank}: code of the barrier`, barrier, "ERR_COMM_ABORTED");
          expectEqual(`rank ${rank}: contents`, held, healthyAmong(ranks.size));
        }
      }),
    "names communicators of the same color differently, alike on all ranks": () =>
      use(most, async (ranks) => {
        const names = await ranks.each("splitNames");
        expectEqual("different names", new Set(names[0]).size, 3);
        expectEqual("names by rank", names, sameOn(ranks, names[0]));
        await expectHealthy(ranks);
      }),
  };
}

function plansOf(subject: RanksUnderTest): Cases {
  const { use, sizes, foldsAsExplained = true } = subject;
  const question = { collective: "allReduce", dtype: "float32", op: "sum" } as const;
  const cases: Cases = {
    "explains every call without running it, by the ranks that each element comes from":
      async () => {
        for (const size of sizes) {
          await use(size, async (ranks) => {
            const calls = explainedCalls(size);
            const answers = await supportsOf(ranks, calls);
            for (const call of calls.filter((_, at) => answers[at])) {
              const plans = await ranks.each("explanation", questionOf(call));
              for (const [rank, plan] of plans.entries()) judgePlan(call, size, rank, plan);
            }
          });
        }
      },
  };
  if (!foldsAsExplained) return cases;
  cases["folds in the order that it explains, rounded at every hop"] = async () => {
    for (const size of sizes) {
      await use(size, async (ranks) => {
        const count = valuesThatRound(0).length;
        const [plan] = await ranks.each("explanation", { ...question, count });
        const contents = Array.from({ length: size }, (_, rank) => valuesThatRound(rank));
        const needed = sumInOrder(plan?.chunks ?? [], contents);
        expectEqual(`bits on ${size} ranks`, await ranks.each("roundedSum"), sameOn(ranks, needed));
        await judgeRounded(ranks);
      });
    }
  };
  return cases;
}

/** Judges every rank's result of reductions that round, by the plans that the ranks explain. */
async function judgeRounded(ranks: ConformanceRanks): Promise<void> {
  // One rank alone folds nothing.
  if (ranks.size === 1) return;
  const all = roundedCalls(ranks.size);
  const answers = await supportsOf(ranks, all);
  const calls = all.filter((_, at) => answers[at]);
  const held = await ranks.each("programs", [programOf(ranks.size, "each", calls)]);
  for (const [at, call] of calls.entries()) {
    const plans = await ranks.each("explanation", questionOf(call));
    const outcomes = held.map(([only]) => only?.[at] as RankOutcome);
    judgeFolds(call, plans, outcomes);
  }
}

function programOf(size: number, issue: Program["issue"], calls: readonly ProgramCall[]): Program {
  const steps = calls.map((call) => ({ kind: "call", comm: 0, call }) as const);
  return { size, issue, splits: [], steps };
}

/** Runs a program and judges every rank's data after every call. */
async function judge(ranks: ConformanceRanks, program: Program): Promise<void> {
  const held = await ranks.each("programs", [program]);
  const byRank = held.map(([only = []]) => only);
  try {
    judgeRun(program, gatherRun(program, byRank, "the subject"));
  } catch (cause) {
    const fault = cause instanceof Error ? cause.message : String(cause);
    throw new Error(`${fault}\nin the program ${textOf(program)}`, { cause });
  }
}

/** Runs the calls that all ranks say they support; the others must be refused by every rank. */
export async function judgeSupported(
  ranks: ConformanceRanks,
  issue: Program["issue"],
  calls: readonly ProgramCall[],
): Promise<void> {
  const answers = await supportsOf(ranks, calls);
  const supported = calls.filter((_, at) => answers[at]);
  const others = calls.filter((call, at) => !answers[at] && call.kind !== "pair");
  if (others.length > 0) {
    const codes = await ranks.each("refusals", others);
    const refused = others.map(() => "ERR_COMM_UNSUPPORTED");
    const kinds = others.map((call) => `${"dtype" in call ? call.dtype : ""} ${call.kind}`);
    expectEqual(`codes of ${kinds.join()}`, codes, sameOn(ranks, refused));
    await expectHealthy(ranks);
  }
  if (supported.length > 0) await judge(ranks, programOf(ranks.size, issue, supported));
}

/** Judges a program without the calls that the ranks do not support, if any are left. */
async function judgeSupportedPart(ranks: ConformanceRanks, program: Program): Promise<void> {
  const callsOf = (step: ProgramStep) => (step.kind === "call" ? [step.call] : step.calls);
  const all = program.steps.flatMap(callsOf);
  // Of the communicator of all ranks: roots and counts of the calls of splits fit theirs alone.
  const answers = await supportsOf(ranks, all, ({ root, counts, ...shape }) => shape);
  const isSupported = (call: ProgramCall): boolean => answers[all.indexOf(call)] === true;
  const steps = program.steps.flatMap((step): ProgramStep[] => {
    const calls = callsOf(step).filter(isSupported);
    if (calls.length === 0) return [];
    return [step.kind === "call" ? step : { ...step, calls }];
  });
  if (steps.length > 0) await judge(ranks, { ...program, steps });
}

async function supportsOf(
  ranks: ConformanceRanks,
  calls: readonly ProgramCall[],
  asked: (question: Question) => Question = (question) => question,
): Promise<readonly boolean[]> {
  const answers = await ranks.each(
    "supports",
    calls.map((call) => asked(questionOf(call))),
  );
  const [first = []] = answers;
  expectEqual("supported calls by rank", answers, sameOn(ranks, first));
  expectEqual("number of answers", first.length, calls.length);
  return first;
}

/** The ranks still work. */
export async function expectHealthy(ranks: ConformanceRanks): Promise<void> {
  const found = await ranks.each("healthCheck");
  expectEqual("a healthy program afterwards", found, sameOn(ranks, healthyAmong(ranks.size)));
}

function sameOn<T>({ size }: ConformanceRanks, value: T): T[] {
  return new Array<T>(size).fill(value);
}
