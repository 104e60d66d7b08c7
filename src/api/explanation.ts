/** The answer of `explain`: the plan of a call, predicted, without running it. */

import { argumentNames, isCollectiveName } from "./argument-names.ts";
import { reachedBuffers, type SymmetricPlace } from "./buffer.ts";
import { bytesOf, type DType, isDType } from "./dtype.ts";
import { InvalidArgumentError } from "./errors.ts";
import { assertOptions, assertRule, integer, type OptionKinds, textOf } from "./option-kinds.ts";
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
  /** Channels of the chunks; of an all-gather in symmetric memory those of the Ring whose blocks its kernel copies. */
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

/** Refuses a question with fields that are invalid for a number of ranks. */
export function assertQuestion(
  given: Question | undefined,
  size: number,
  action: "explain" | "estimate" | "supports",
): void {
  const question = given ?? ({} as Question);
  const { collective, dtype = "float32", op } = question;
  const name = typeof collective === "string" ? collective : textOf(collective);
  const facts = { size, collective: name };
  const nameRule = { needed: "the name of a call, such as allReduce", holds: isCollectiveName };
  assertRule(action, "collective", collective, nameRule, facts);
  assertOptions(action, question, fieldRules(collective, size), facts);
  const wrong = op === undefined ? undefined : reduceOpFault(op, dtype);
  const isLacking = op === undefined && action !== "supports" && "op" in argumentNames[collective];
  if (wrong === undefined && !isLacking) return;
  const headline = `${action}: op: ${wrong ?? "it was left out"}, needs ${reduceOpChoices}`;
  throw new InvalidArgumentError({ headline }, { ...facts, field: "op" });
}

/** The rules of a question's fields, but for the operator, which depends on the dtype. */
function fieldRules(collective: CollectiveName, size: number): OptionKinds<Question> {
  const count = integer(0);
  const rows = collective === "allToAllv" ? size : 1;
  return {
    collective: true,
    dtype: { needed: "the name of a dtype", holds: isDType },
    ...{ op: true, count, root: integer(0, size - 1) },
    counts: {
      needed: `${rows} rows of ${size} counts`,
      holds: (counts) =>
        isListOf(counts, rows, (row) => isListOf(row, size, (each) => count.holds(each))),
    },
    symmetric: {
      needed: "a boolean, or sendOffset and recvOffset",
      holds: (symmetric) => {
        const { sendOffset, recvOffset } = Object(symmetric) as Partial<SymmetricOffsets>;
        return typeof symmetric === "boolean" || [sendOffset, recvOffset].every(count.holds);
      },
    },
  };
}

function isListOf(value: unknown, length: number, isItem: (item: unknown) => boolean): boolean {
  // An array with holes has them as `undefined`.
  return Array.isArray(value) && value.length === length && Array.from(value).every(isItem);
}

/** Where a question's buffers start in symmetric memory, in bytes; `undefined` where they are other memory. */
export function questionPlace(question: Question): SymmetricPlace | undefined {
  const { collective, dtype, symmetric = false } = question;
  if (symmetric === false || dtype === undefined) return undefined;
  if (reachedBuffers[collective] === undefined) return undefined;
  const { sendOffset, recvOffset } =
    symmetric === true ? { sendOffset: 0, recvOffset: 0 } : symmetric;
  return { send: sendOffset * bytesOf(dtype), recv: recvOffset * bytesOf(dtype) };
}
