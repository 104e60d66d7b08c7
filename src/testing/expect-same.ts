/** Compares the results of a program with those of another backend or of the oracle, and reports the first difference. */
import { firstDifference } from "../api/bits.ts";
import { bytesOf, type DType, type ReduceOp } from "../api/index.ts";
import { invalid, textOf } from "../api/option-kinds.ts";
import { assertAmong, assertRun } from "./argument-checks.ts";
import { floatFormat, floatKind } from "./element-bits.ts";
import { type FoldOracle, judgeRun as judge } from "./oracle/judge.ts";
import type { Program, ProgramCall } from "./program.ts";
import { assertProgram } from "./program-checks.ts";
import type { CallOutcome, ProgramRun } from "./run-program.ts";

/**
 * The parts that must agree. `results`: the library's promise of the same bytes. After a reduction any two NaNs are equal;
 * after a minimum or maximum zeros of both signs are equal. `bytes`: every byte.
 */
export type SameRule = "results" | "bytes";

const rules: readonly SameRule[] = ["results", "bytes"];

/**
 * Compares two runs of one program.
 *
 * @throws Error naming the first backend pair, call, rank and element that differ, with both bit patterns.
 * InvalidArgumentError for what is no run, and for another rule.
 * @example
 * const [a, b] = await runOn({ ring: sim(), linear: sim({ algorithms: { allReduce: "linear" } }) }, program);
 * expectSame(a, b);
 */
export function expectSame(a: ProgramRun, b: ProgramRun, rule: SameRule = "results"): void {
  assertRun("expectSame", "a", a);
  assertRun("expectSame", "b", b);
  assertAmong("expectSame", "rule", rule, rules);
  const pair = `${a.backend} and ${b.backend} differ`;
  if (a.outcomes.length !== b.outcomes.length) {
    throw new Error(`${pair}: ${a.outcomes.length} calls against ${b.outcomes.length}`);
  }
  for (const [at, left] of a.outcomes.entries()) {
    const right = b.outcomes[at];
    const difference = right && differenceOf(left, right, rule);
    if (difference !== undefined) throw new Error(`${pair}: ${difference}`);
  }
}

/** First difference of two outcomes of one call; `undefined` if they agree. */
function differenceOf(a: CallOutcome, b: CallOutcome, rule: SameRule): string | undefined {
  const where = `call ${a.label} (${callName(a.call)})`;
  if (callName(a.call) !== callName(b.call)) return `${where} against ${callName(b.call)}`;
  if (a.ranks.length !== b.ranks.length) return `${a.ranks.length} ranks against ${b.ranks.length}`;
  for (const [rank, left] of a.ranks.entries()) {
    const right = b.ranks[rank];
    if (left === undefined && right === undefined) continue;
    if (left === undefined || right === undefined) return `${where}: rank ${rank} is in one only`;
    for (const field of ["recvCounts", "recvOffsets"] as const) {
      const [mine, theirs] = [String(left[field]), String(right[field])];
      if (mine !== theirs) return `${where}, rank ${rank}: ${field} ${mine} against ${theirs}`;
    }
    if (a.call.kind === "barrier") continue;
    const op = rule === "results" && "op" in a.call ? a.call.op : undefined;
    const { dtype } = a.call;
    const [mine, theirs] = [left.bytes, right.bytes];
    if (mine.length !== theirs.length) {
      return `${where}, rank ${rank}, ${mine.length} bytes against ${theirs.length}`;
    }
    const equal = (x: bigint, y: bigint): boolean =>
      op !== undefined && equalAfter(op, dtype, x, y);
    const found = firstDifference(mine, theirs, bytesOf(dtype), equal);
    if (found === undefined) continue;
    return `${where}, rank ${rank}, element ${found.element}: ${found.a} against ${found.b}`;
  }
  return undefined;
}

function equalAfter(op: ReduceOp, dtype: DType, x: bigint, y: bigint): boolean {
  const format = floatFormat(dtype);
  if (format === undefined) return false;
  const kind = floatKind(format, x);
  if (kind !== floatKind(format, y)) return false;
  return kind === "nan" || (kind === "zero" && (op === "min" || op === "max"));
}

function callName(call: ProgramCall): string {
  return call.kind === "barrier" ? call.kind : `${call.kind} ${call.dtype}`;
}

// The oracle imports no value of the library, so its arguments are checked here.

/**
 * Judges a run of a program with exact contents by an oracle of its own, which shares no code with the library. With `fold` it
 * judges any contents.
 *
 * @throws Error naming the first call, rank and element that differ from what the program requires. InvalidArgumentError for
 * what is no program, no run or no function.
 * @example
 * judgeRun(program, await runProgram(backend, program));
 */
export function judgeRun(program: Program, run: ProgramRun, fold?: FoldOracle): void {
  assertProgram("judgeRun", program);
  assertRun("judgeRun", "run", run);
  if (fold !== undefined && typeof fold !== "function") {
    throw invalid("judgeRun", "fold", textOf(fold), "a function");
  }
  judge(program, run, fold && checkedFold(fold));
}

/** The oracle, whose answers must be bytes. */
function checkedFold(fold: FoldOracle): FoldOracle {
  return (...folded) => {
    const bytes: unknown = fold(...folded);
    if (ArrayBuffer.isView(bytes)) return bytes as Uint8Array;
    throw invalid(
      "judgeRun",
      "fold",
      `${textOf(bytes)} as its result`,
      "a function that gives bytes",
    );
  };
}
