/**
 * Every collective of the house, for one dtype, as programs: all operators, in place and apart, at offsets, at every
 * root, with counts of nothing and counts that do not divide; alone, in groups, captured, after splits, in symmetric
 * memory. Contents of folds are arbitrary bits where the ranks keep the order of their devices.
 */
import type { ReduceOp } from "twinccl";
import type { Placement, Program, ProgramCall, ProgramStep } from "twinccl/testing";
import { isFloat, widths } from "../../src/testing/oracle/elements.ts";
import type { OracleDType } from "../../src/testing/oracle/rounding.ts";

const forms: readonly Placement["form"][] = ["apart", "oneBlock", "inPlace"];
const counts = [13, 0, 259, 1, 2, 67, 130];
const orders = ["packed", "reversed"] as const;

/** Numbers the calls, so that counts, roots, offsets and contents differ from call to call. */
class Numbering {
  #next = 0;

  next(): number {
    return this.#next++;
  }
}

function operatorsOf(dtype: OracleDType): readonly ReduceOp[] {
  const scalars = isFloat(dtype) ? [1 / 3, -2.5] : [3, 0];
  return ["sum", "prod", "min", "max", "avg", ...scalars.map((preMul) => ({ preMul }))];
}

function at<T>(list: readonly T[], index: number): T {
  return list[index % list.length] as T;
}

/** Blocks of every rank, some empty. */
function blocks(size: number, number: number, most: number): number[] {
  return Array.from({ length: size }, (_, rank) => ((rank + 1) * (number + 3)) % (most + 1));
}

function dataOf(dtype: OracleDType, form: Placement["form"], number: number) {
  const placement = { form, lead: number % 4, tail: number % 3, host: false };
  return { dtype, payload: "bits", seed: 7919 * (number + 1), placement } as const;
}

/** All folds with all operators. */
function folds(dtype: OracleDType, size: number, numbering: Numbering): ProgramCall[] {
  return forms.flatMap((form) =>
    operatorsOf(dtype).flatMap((op): ProgramCall[] => {
      const number = numbering.next();
      const data = { ...dataOf(dtype, form, number), op };
      const count = at(counts, number);
      return [
        { ...data, kind: "allReduce", count },
        { ...data, kind: "reduce", count, root: number % size },
        { ...data, kind: "reduceScatter", count: at(counts, number + 3) },
        { ...data, kind: "reduceScatterv", counts: blocks(size, number, 40) },
      ];
    }),
  );
}

/** All copies; those that ask the host for counts only where they may. */
function copies(dtype: OracleDType, size: number, alone: boolean, numbering: Numbering) {
  const calls: ProgramCall[] = [];
  for (const form of forms) {
    for (const order of orders) {
      const number = numbering.next();
      const data = dataOf(dtype, form, number);
      const root = number % size;
      const count = at(counts, number);
      const each = blocks(size, number, 9);
      const matrix = Array.from({ length: size }, (_, from) => blocks(size, number + from, 5));
      const shift = Array.from({ length: size }, (_, rank) => (rank + number) % size);
      calls.push(
        { ...data, kind: "broadcast", count, root },
        { ...data, kind: "allGather", count },
        { ...data, kind: "allGatherv", counts: each, order },
        { ...data, kind: "gather", root, counts: each, order },
        { ...data, kind: "scatter", root, counts: each, order },
        { ...data, kind: "gather", root, counts: new Array(size).fill(number % 5), order: "even" },
        { ...data, kind: "scatter", root, counts: new Array(size).fill(number % 5), order: "even" },
        { ...data, kind: "allToAll", count: number % 7 },
        { ...data, kind: "allToAllv", counts: matrix, give: "both", recv: "longer", order },
        { ...data, kind: "sendRecv", count, to: shift },
      );
      if (!alone) continue;
      calls.push(
        { ...data, kind: "allToAllv", counts: matrix, give: "exchange", recv: "allocated", order },
        { ...data, kind: "allToAllv", counts: matrix, give: "exchange", recv: "exact", order },
        { kind: "barrier" },
      );
      if (size > 1) calls.push({ ...data, kind: "pair", count, from: root, to: (root + 1) % size });
    }
  }
  return calls;
}

/** Calls with kernels for symmetric memory. Elements in fours: NCCL defines nothing for narrow ones off a word's start. */
function symmetric(dtype: OracleDType, size: number, numbering: Numbering): ProgramCall[] {
  return forms
    .flatMap((form) =>
      operatorsOf(dtype).flatMap((op): ProgramCall[] => {
        const number = numbering.next();
        const plain = dataOf(dtype, form, number);
        const lead = 4 * plain.placement.lead;
        const data = { ...plain, placement: { ...plain.placement, lead, symmetric: true } };
        const count = 4 * at(counts, number);
        return [
          { ...data, kind: "allReduce", op, count },
          { ...data, kind: "reduceScatter", op, count },
          ...(op === "sum" ? [{ ...data, kind: "allGather", count } as const] : []),
        ];
      }),
    )
    .concat(size > 1 && widths[dtype] >= 4 ? unaligned(dtype, numbering) : []);
}

/** Wide elements may lie anywhere in symmetric memory. */
function unaligned(dtype: OracleDType, numbering: Numbering): ProgramCall[] {
  return [1, 3, 1000].map((lead): ProgramCall => {
    const data = dataOf(dtype, "oneBlock", numbering.next());
    const placement = { ...data.placement, lead, symmetric: true };
    return { ...data, placement, kind: "allReduce", op: "sum", count: 77 };
  });
}

const step = (call: ProgramCall, comm = 0): ProgramStep => ({ kind: "call", comm, call });

/** Exact where the order of the devices is not kept: the rings there are not known. */
function exact(call: ProgramCall): ProgramCall {
  if (!("op" in call)) return call;
  const rounds = call.op === "avg" || typeof call.op === "object";
  return { ...call, payload: "exact", op: rounds ? "sum" : call.op };
}

/** The programs; each can be run in a world that others have used. */
export function everyCall(dtype: OracleDType, size: number): Program[] {
  const numbering = new Numbering();
  const program = (issue: Program["issue"], steps: readonly ProgramStep[]): Program => ({
    size,
    issue,
    splits: [],
    steps,
  });
  const few = (calls: readonly ProgramCall[], every: number): ProgramCall[] =>
    calls.filter((_, index) => index % every === 0);
  const programs = [
    program(
      "together",
      folds(dtype, size, numbering).map((call) => step(call)),
    ),
    program(
      "each",
      copies(dtype, size, true, numbering).map((call) => step(call)),
    ),
    program(
      "together",
      symmetric(dtype, size, numbering).map((call) => step(call)),
    ),
    program("each", [
      { kind: "group", comm: 0, calls: copies(dtype, size, false, numbering) },
      { kind: "group", comm: 0, calls: few(folds(dtype, size, numbering), 5) },
      { kind: "replay", comm: 0, calls: copies(dtype, size, false, numbering), times: 2 },
      { kind: "replay", comm: 0, calls: few(folds(dtype, size, numbering), 5), times: 3 },
      { kind: "replay", comm: 0, calls: few(symmetric(dtype, size, numbering), 5), times: 2 },
    ]),
  ];
  if (size > 1) programs.push(afterSplits(dtype, size, few, numbering));
  return programs;
}

/** Communicator 1 keeps the order of the devices without the first, 2 is the first alone, 3 turns all round. */
function afterSplits(
  dtype: OracleDType,
  size: number,
  few: (calls: readonly ProgramCall[], every: number) => ProgramCall[],
  numbering: Numbering,
): Program {
  const ranks = Array.from({ length: size }, (_, rank) => rank);
  const on = (comm: number, members: number): ProgramStep[] =>
    [
      ...few(folds(dtype, members, numbering), 3),
      ...few(copies(dtype, members, true, numbering), 3),
    ].map((call) => step(comm === 3 ? exact(call) : call, comm));
  return {
    size,
    issue: "together",
    splits: [
      { parent: 0, colors: ranks.map((rank) => (rank === 0 ? 1 : 0)), reversed: false },
      { parent: 0, colors: ranks.map(() => 0), reversed: true },
    ],
    steps: [...on(1, size - 1), ...on(2, 1), ...on(3, size)],
  };
}

/** Folds long enough for every protocol and for all channels. */
export function longFolds(dtype: OracleDType, size: number, count: number): Program {
  const numbering = new Numbering();
  const kinds = (["allReduce", "reduce", "reduceScatter"] as const).map((kind): ProgramCall => {
    const number = numbering.next();
    const data = { ...dataOf(dtype, at(forms, number), number), op: "sum", count } as const;
    if (kind === "reduce") return { ...data, kind, root: size - 1 };
    return kind === "allReduce" ? { ...data, kind } : { ...data, kind, count: count >> 2 };
  });
  return { size, issue: "each", splits: [], steps: kinds.map((call) => step(call)) };
}
