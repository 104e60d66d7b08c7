/**
 * A program as data: communicators, calls, and the placement of their buffers.
 *
 * Contents are generated from a seed when the program runs, so that a program prints in one line and shrinks well. The runner
 * (`runProgram`) computes no expectation; an oracle needs only this data and the sent bytes.
 */
import type { DType, ReduceOp } from "../api/index.ts";
import { assertMembers, assertWhole } from "./argument-checks.ts";

/** `exact`: every partial result is representable, so any order gives the same bits; `bits`: anything. */
export type PayloadClass = "exact" | "bits";

/** Every class of contents. */
export const payloadClasses: readonly PayloadClass[] = ["exact", "bits"];

/** Placement of a call's buffers. */
export interface Placement {
  /** Two allocations, two ranges of one, or `send` and `recv` at the in-place position where the call has one. */
  readonly form: "apart" | "oneBlock" | "inPlace";
  /** Elements before each range. */
  readonly lead: number;
  /** Elements after the last range. */
  readonly tail: number;
  /** TypedArrays instead of buffers, if the backend accepts them. */
  readonly host: boolean;
  /** Buffers in symmetric memory, if the backend has it; false by default. */
  readonly symmetric?: boolean | undefined;
}

/** The fields of every call with data. */
export interface DataCall {
  readonly dtype: DType;
  readonly payload: PayloadClass;
  /** Fixes the contents, by rank and by replay. */
  readonly seed: number;
  readonly placement: Placement;
}

/** The fields of every folding call; `scalars` gives each rank its own scalar of a pre-multiplied sum. */
export interface FoldingCall extends DataCall {
  readonly op: ReduceOp;
  readonly scalars?: readonly (number | bigint)[] | undefined;
}

/** Blocks one after another, or last one first with a gap of one element before each. */
export type BlockOrder = "packed" | "reversed";

/** One call of all ranks of a communicator; counts are elements. */
export type ProgramCall =
  | { readonly kind: "barrier" }
  | (FoldingCall & { readonly kind: "allReduce"; readonly count: number })
  | (FoldingCall & { readonly kind: "reduce"; readonly count: number; readonly root: number })
  | (FoldingCall & { readonly kind: "reduceScatter"; readonly count: number })
  | (FoldingCall & { readonly kind: "reduceScatterv"; readonly counts: readonly number[] })
  | (DataCall & { readonly kind: "broadcast"; readonly count: number; readonly root: number })
  | (DataCall & { readonly kind: "allGather"; readonly count: number })
  | (DataCall & {
      readonly kind: "allGatherv";
      readonly counts: readonly number[];
      readonly order: BlockOrder;
    })
  | (DataCall & {
      readonly kind: "gather" | "scatter";
      readonly root: number;
      readonly counts: readonly number[];
      /** `even`: all counts are the same and none are given. */
      readonly order: BlockOrder | "even";
    })
  | (DataCall & { readonly kind: "allToAll"; readonly count: number })
  | (DataCall & {
      readonly kind: "allToAllv";
      /** Row i: what rank i sends to each rank. */
      readonly counts: readonly (readonly number[])[];
      /** `exchange`: `recvCounts` omitted on all ranks. */
      readonly give: "exchange" | "both";
      readonly recv: "allocated" | "exact" | "longer";
      readonly order: BlockOrder;
    })
  | (DataCall & {
      readonly kind: "sendRecv";
      readonly count: number;
      /** Rank r sends to rank `to[r]`: a permutation. */
      readonly to: readonly number[];
    })
  | (DataCall & {
      readonly kind: "pair";
      readonly count: number;
      readonly from: number;
      readonly to: number;
    });

/** Words and numbers of a call beside those of every call with data. */
export type CallField =
  | "count"
  | "counts"
  | "rows"
  | "root"
  | "order"
  | "even"
  | "ends"
  | "to"
  | "give"
  | "fold";

/** Those of each call. */
export const callFields: Readonly<Record<ProgramCall["kind"], readonly CallField[]>> = {
  barrier: [],
  allReduce: ["count", "fold"],
  reduce: ["count", "root", "fold"],
  reduceScatter: ["count", "fold"],
  reduceScatterv: ["counts", "fold"],
  broadcast: ["count", "root"],
  allGather: ["count"],
  allGatherv: ["counts", "order"],
  gather: ["counts", "root", "even"],
  scatter: ["counts", "root", "even"],
  allToAll: ["count"],
  allToAllv: ["rows", "give", "order"],
  sendRecv: ["count", "to"],
  pair: ["count", "ends"],
};

/** A call that folds. */
export type ProgramFoldingCall = Extract<ProgramCall, FoldingCall>;

/** A call with data. */
export type ProgramDataCall = Exclude<ProgramCall, { readonly kind: "barrier" }>;

/** A split of an earlier communicator, made before all steps. */
export interface ProgramSplit {
  /** Number of the parent: 0 is the world's, the others follow in the order of splits and, within one, of colors. */
  readonly parent: number;
  /** By rank of the parent; `null` joins no communicator. */
  readonly colors: readonly (number | null)[];
  /** The parent's last rank comes first. */
  readonly reversed: boolean;
}

/** The next step of the ranks of one communicator. */
export type ProgramStep =
  | { readonly kind: "call"; readonly comm: number; readonly call: ProgramCall }
  | { readonly kind: "group"; readonly comm: number; readonly calls: readonly ProgramCall[] }
  | {
      readonly kind: "replay";
      readonly comm: number;
      readonly calls: readonly ProgramCall[];
      /** Number of runs of the captured calls, with new contents each time. */
      readonly times: number;
    };

/** The same steps, in the same order, on every rank that is a member of their communicator. */
export interface Program {
  readonly size: number;
  /** `each`: await one step after the other; `together`: make all calls, then await them. */
  readonly issue: "each" | "together";
  readonly splits: readonly ProgramSplit[];
  readonly steps: readonly ProgramStep[];
}

/** World ranks of every communicator of a program, by rank in it. */
export function communicatorsOf(
  program: Pick<Program, "size" | "splits">,
): readonly (readonly number[])[] {
  const members = { size: "number", splits: "array" } as const;
  assertMembers("communicatorsOf", "program", program, members, "a program with size and splits");
  assertWhole("communicatorsOf", "program.size", program.size, 1, 2 ** 31);
  for (const [at, split] of program.splits.entries()) {
    const needed = "a split of a program, with colors";
    assertMembers("communicatorsOf", `program.splits[${at}]`, split, { colors: "array" }, needed);
  }
  const comms: (readonly number[])[] = [Array.from({ length: program.size }, (_, rank) => rank)];
  for (const { parent, colors, reversed } of program.splits) {
    const members = comms[parent] ?? [];
    const found = new Set(colors.filter((color) => color !== null));
    for (const color of [...found].sort((a, b) => a - b)) {
      const group = members.filter((_, rank) => colors[rank] === color);
      comms.push(reversed ? group.reverse() : group);
    }
  }
  return comms;
}

/** One execution of one call. */
export interface Occurrence {
  /** Such as `2` for step 2, `2.1` for its second call, `2.1#3` for that call's fourth replay. */
  readonly label: string;
  readonly comm: number;
  readonly call: ProgramCall;
  readonly round: number;
}

/** Every execution of every call, in program order. */
export function occurrencesOf(program: Program): Occurrence[] {
  return program.steps.flatMap((step, at): Occurrence[] => {
    const { comm } = step;
    if (step.kind === "call") return [{ label: `${at}`, comm, call: step.call, round: 0 }];
    const rounds = step.kind === "replay" ? step.times : 1;
    return Array.from({ length: rounds }, (_, round) =>
      step.calls.map((call, part) => {
        const label = `${at}.${part}${step.kind === "replay" ? `#${round}` : ""}`;
        return { label, comm, call, round };
      }),
    ).flat();
  });
}
