/** The answer of `explain`: the plan of a call, predicted, without running it. */

import { argumentNames, isCollectiveName } from "./argument-names.ts";
import { reachedBuffers, type SymmetricPlace } from "./buffer.ts";
import { bytesOf, type DType, isDType } from "./dtype.ts";
import { InvalidArgumentError } from "./errors.ts";
import { namesText } from "./nearest.ts";
import { type OptionKinds, textOf } from "./option-kinds.ts";
import { type ReduceOp, reduceOpChoices, reduceOpFault } from "./reduce-op.ts";
import type { CollectiveName } from "./specification.ts";

/** A call described by its shape alone. */
export interface Question {
  readonly collective: CollectiveName;
  /** Left out for a barrier. */
  readonly dtype?: DType | undefined;
  /** For collectives that reduce, which need it to be explained or estimated. */
  readonly op?: ReduceOp | undefined;
  /** Elements as NCCL counts them for the collective; for an all-to-all the elements per peer. */
  readonly count?: number | undefined;
  readonly root?: number | undefined;
  /** For an all-to-allv: row i holds what rank i sends to each rank. Left out: `count` to every peer. */
  readonly counts?: readonly (readonly number[])[] | undefined;
  /** Both buffers are symmetric memory: where in it they start, in elements; `true` for its start. */
  readonly symmetric?: boolean | SymmetricOffsets | undefined;
}

const kinds: OptionKinds<Question> = {
  ...{ collective: true, dtype: true, op: true, count: true, root: true },
  ...{ counts: true, symmetric: true },
};

/** Elements from the start of symmetric memory to each buffer of a call. */
export interface SymmetricOffsets {
  readonly sendOffset: number;
  readonly recvOffset: number;
}

/** One chunk of the buffer and what becomes of it. */
export interface ChunkPlan {
  readonly chunk: number;
  /** First element and length in the output. */
  readonly offset: number;
  readonly length: number;
  /** Ranks in the order in which their contributions are folded; a single rank for a copy. */
  readonly order: readonly number[];
  /** The fold as text, with its brackets, such as `((r1 + r2) + r3) + r0`. */
  readonly fold: string;
}

/** The plan of one call. Its text (`String(plan)`) is made for people. */
export interface Explanation {
  readonly collective: CollectiveName;
  readonly algorithm: string;
  readonly protocol: string | undefined;
  readonly channels: number;
  readonly ranks: number;
  /**
   * The rank of the output that `chunks` and `chunkOf` describe. If outputs differ between ranks, as in a reduce-scatter, it is
   * the calling rank of `comm.explain`, or the root if that rank has none. It is 0 where all ranks have the same output, and of
   * `world.explain`.
   */
  readonly rank: number;
  /** Chunks of the output of `rank`. */
  readonly chunks: readonly ChunkPlan[];
  /** Messages one after another on the longest path. */
  readonly steps: number;
  /** Bytes that the busiest rank sends. */
  readonly sentBytes: number;
  /** Predicted time until the last rank is done; virtual. */
  readonly predictedNs: number;
  /** The machine of the predicted time, or the links; left out by backends without either. */
  readonly predictedFor?: string | undefined;
  /** The claim about equality with NCCL. */
  readonly claim: string;
  /**
   * The kind of memory, and of issue, that was the fastest on GPUs for calls of this size; left out where that was not
   * measured. Symmetric memory changes the bits, so the caller has to choose it.
   */
  readonly fastest?: string | undefined;
  /**
   * The chunk that holds an element of the output of `rank`.
   *
   * @throws InvalidArgumentError for an element that is no index, or that the output does not have.
   */
  chunkOf(element: number): ChunkPlan;
  /** The plan as lines of text. */
  toString(): string;
}

/** Checks the fields of a question for a number of ranks; throws for an invalid one. */
export function checkedQuestion(
  question: Question,
  size: number,
  action: "explain" | "estimate",
): Question {
  const fault = questionFault(question, size, action);
  if (fault !== undefined) throw fault;
  return question;
}

/** Reason why a question is invalid for a number of ranks; `undefined` if valid. */
export function questionFault(
  question: Question | undefined,
  size: number,
  action: "explain" | "estimate" | "supports",
): InvalidArgumentError | undefined {
  const { collective, dtype, op, count, root, counts, symmetric } = question ?? ({} as Question);
  const refusal = (field: string, what: string, needed: string): InvalidArgumentError =>
    new InvalidArgumentError(
      { headline: `${action}: ${field}: ${what}, needs ${needed}` },
      { size, field, collective: typeof collective === "string" ? collective : textOf(collective) },
    );
  const fault = (field: string, found: unknown, needed: string): InvalidArgumentError =>
    refusal(field, `found ${textOf(found)}`, needed);
  if (!isCollectiveName(collective)) {
    return fault("collective", collective, "the name of a call, such as allReduce");
  }
  for (const name in question) {
    if (Object.hasOwn(kinds, name)) continue;
    const known = Object.keys(kinds);
    return refusal(name, "it is not known here", `one of ${namesText(name, known)}`);
  }
  if (dtype !== undefined && !isDType(dtype)) return fault("dtype", dtype, "the name of a dtype");
  if (op !== undefined) {
    const wrong = reduceOpFault(op, dtype ?? "float32");
    if (wrong !== undefined) return refusal("op", wrong, "an operator that is legal for the dtype");
  }
  if (count !== undefined && !isCount(count)) {
    return fault("count", count, "an integer of at least 0");
  }
  if (root !== undefined && !(isCount(root) && root < size)) {
    return fault("root", root, `a rank in 0..${size - 1}`);
  }
  if (counts !== undefined) {
    const rows = collective === "allToAllv" ? size : 1;
    const whole =
      Array.isArray(counts) &&
      counts.length === rows &&
      counts.every((row) => Array.isArray(row) && row.length === size && row.every(isCount));
    if (!whole) return refusal("counts", "found another shape", `${rows} rows of ${size} counts`);
  }
  if (symmetric !== undefined && typeof symmetric !== "boolean") {
    const whole = isCount(symmetric?.sendOffset) && isCount(symmetric.recvOffset);
    if (!whole) return fault("symmetric", symmetric, "a boolean, or sendOffset and recvOffset");
  }
  if (op === undefined && action !== "supports" && "op" in argumentNames[collective]) {
    return refusal("op", "it was left out", reduceOpChoices);
  }
  return undefined;
}

/** Where a question's buffers start in symmetric memory, in bytes; `undefined` where they are other memory. */
export function questionPlace(question: Question): SymmetricPlace | undefined {
  const { collective, dtype, symmetric = false } = question;
  if (symmetric === false || dtype === undefined) return undefined;
  if (reachedBuffers(collective) === undefined) return undefined;
  const { sendOffset, recvOffset } =
    symmetric === true ? { sendOffset: 0, recvOffset: 0 } : symmetric;
  return { send: sendOffset * bytesOf(dtype), recv: recvOffset * bytesOf(dtype) };
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
