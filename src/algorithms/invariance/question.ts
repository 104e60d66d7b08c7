/** A question of invariance, checked and with its defaults. */

import { specifications } from "../../api/collectives/index.ts";
import { type DType, dtypeInfo, dtypes, isDType } from "../../api/dtype.ts";
import { UnsupportedError } from "../../api/errors.ts";
import { assertOptions, invalid, type OptionKinds, textOf } from "../../api/option-kinds.ts";
import { type ReduceOp, reduceOpFault, reduceOpName } from "../../api/reduce-op.ts";
import { type FloatDType, roundScalar } from "../arithmetic/index.ts";
import type { Forced } from "../nccl/choice.ts";
import { type NcclVariables, ncclEnvironment } from "../nccl/environment.ts";
import {
  isNcclCollective,
  type NcclCollective,
  type NcclSettings,
  ncclCollectives,
  rulesOf,
} from "../nccl/rules.ts";
import { h200x8, type Topology } from "../nccl/topology.ts";
import type { CallRequest, Counts } from "./stretches.ts";

/** Possible dependences of bits. */
export const dependences = [
  "size",
  "position",
  "channels",
  "protocol",
  "ranks",
  "hosts",
  "version",
] as const;

/** One of them. */
export type Dependence = (typeof dependences)[number];

/** A machine by the number of its ranks. */
export type TopologyOf = (ranks: number) => Topology;

/** Do the bits of a sum depend on anything but its contributions? */
export interface InvarianceQuestion {
  readonly collective: NcclCollective;
  /** One number or several: groups that are padded to each other's size. */
  readonly ranks: number | readonly number[];
  readonly dtype: DType;
  /** A sum by default; collectives that copy take none. */
  readonly op?: ReduceOp | undefined;
  /** Of a reduce; rank 0 by default. */
  readonly root?: number | undefined;
  /** Numbers of elements as passed to the call: all from the first to the last one. */
  readonly counts: { readonly from: number; readonly to: number };
  /** Only counts that are multiples of it, and places that are apart by it: the elements of a row of a batch. 1 by default. */
  readonly row?: number | undefined;
  /** NCCL's environment variables. */
  readonly variables?: NcclVariables | undefined;
  /** One or several, such as `2.28`. */
  readonly version?: string | readonly string[] | undefined;
  /** The machine, or several; eight H200 by default. */
  readonly topology?: TopologyOf | readonly TopologyOf[] | undefined;
  /** All that have more than one possibility by default. */
  readonly ask?: readonly Dependence[] | undefined;
}

/** The settings that the variables make for the collective. */
export interface CallEnvironment {
  readonly settings: NcclSettings;
  readonly forced: Forced;
  readonly allowsNvls: boolean;
}

/** The question in the form that the answers use. */
export interface Resolved {
  readonly collective: NcclCollective;
  /** Ascending. */
  readonly ranks: readonly number[];
  readonly dtype: DType;
  readonly op: ReduceOp | undefined;
  readonly root: number | undefined;
  readonly counts: Counts;
  readonly variables: NcclVariables;
  readonly environment: CallEnvironment;
  readonly versions: readonly string[];
  readonly topologies: readonly TopologyOf[];
  readonly ask: readonly Dependence[];
}

const subject = "invariance";

/** Most ranks: their orders take some seconds and 0.7 GB. */
const maxRanks = 2048;

const kinds: OptionKinds<InvarianceQuestion> = {
  ...{ collective: true, ranks: true, dtype: true, op: true, root: true, counts: "object" },
  ...{ row: true, variables: "object", version: true, topology: true, ask: "array" },
};

/** Checks a question. Throws an InvalidArgumentError with the field at fault. */
export function resolveQuestion(question: InvarianceQuestion): Resolved {
  assertOptions(subject, question, kinds);
  const { collective, dtype, variables = {} } = question;
  if (!isNcclCollective(collective)) {
    throw invalid(
      subject,
      "collective",
      textOf(collective),
      `one of ${ncclCollectives.join(", ")}`,
    );
  }
  if (!isDType(dtype))
    throw invalid(subject, "dtype", textOf(dtype), `one of ${dtypes.join(", ")}`);
  const ranks = listOf(question.ranks).map((each) => wholeNumber("ranks", each, 1));
  if (ranks.length === 0) throw invalid(subject, "ranks", "none", "at least one number");
  const sorted = [...new Set(ranks)].sort((a, b) => a - b);
  assertRanks(sorted.at(-1) as number);
  const versions = listOf(question.version ?? "2.28");
  if (versions.length === 0) throw invalid(subject, "version", "none", "at least one");
  for (const version of versions) rulesOf(version);
  const topologies = listOf(question.topology ?? h200x8);
  for (const each of sorted) assertMachines(topologies, each);
  const { settings, forced, allowsNvls } = ncclEnvironment(variables);
  const sizes = { ranks: sorted.length, hosts: topologies.length, version: versions.length };
  return {
    collective,
    ranks: sorted,
    dtype,
    op: operatorOf(question),
    root: rootOf(question, sorted),
    counts: countsOf(question),
    variables,
    environment: { settings, forced: forced(collective), allowsNvls: allowsNvls(collective) },
    versions,
    topologies,
    ask: askOf(question.ask, sizes),
  };
}

function listOf<T>(value: T | readonly T[]): readonly T[] {
  return Array.isArray(value) ? (value as readonly T[]) : [value as T];
}

function wholeNumber(field: string, value: unknown, least: number): number {
  if (Number.isSafeInteger(value) && (value as number) >= least) return value as number;
  throw invalid(subject, field, textOf(value), `a whole number of at least ${least}`);
}

function assertRanks(most: number): void {
  if (most <= maxRanks) return;
  throw new UnsupportedError(
    {
      headline: `${subject}: ranks: found ${most}, needs at most ${maxRanks}`,
      hint: "a Ring has an order of its own for every rank, so that the work grows with their square",
    },
    { field: "ranks" },
  );
}

/** Throws for no machines, what is no machine, and more ranks than a machine has. */
function assertMachines(topologies: readonly unknown[], ranks: number): void {
  const isMachine = (each: unknown): boolean =>
    typeof each === "function" && each(ranks)?.ranks === ranks;
  const other = topologies.find((each) => !isMachine(each));
  if (topologies.length > 0 && other === undefined) return;
  const needs = "topologies by the number of ranks, such as h200x8";
  throw invalid(subject, "topology", topologies.length === 0 ? "none" : textOf(other), needs);
}

function operatorOf({ collective, dtype, op }: InvarianceQuestion): ReduceOp | undefined {
  if (!specifications[collective].reduces) {
    if (op === undefined) return undefined;
    throw invalid(subject, "op", textOf(op), `none: ${collective} copies`);
  }
  const fault = op === undefined ? undefined : reduceOpFault(op, dtype);
  if (fault !== undefined) throw invalid(subject, "op", fault, `an operator for ${dtype}`);
  if (typeof op === "object" && isFloat(dtype)) {
    const scalar = roundScalar(dtype, Number(op.preMul));
    // No order matters to such products, which the classes of folds do not tell.
    if (scalar === 0 || !Number.isFinite(scalar)) {
      const needs = `a scalar that is finite and not 0 in ${dtype}`;
      throw invalid(subject, "op", reduceOpName(op), needs);
    }
  }
  return op ?? "sum";
}

function isFloat(dtype: DType): dtype is FloatDType {
  return dtypeInfo[dtype].kind === "float";
}

function rootOf(
  { collective, root }: InvarianceQuestion,
  [fewest = 1]: readonly number[],
): number | undefined {
  if (specifications[collective].rooted) {
    const rank = root ?? 0;
    if (Number.isSafeInteger(rank) && rank >= 0 && rank < fewest) return rank;
    throw invalid(subject, "root", textOf(root), `a rank of 0..${fewest - 1}`);
  }
  if (root === undefined) return undefined;
  throw invalid(subject, "root", textOf(root), `none: ${collective} has no root`);
}

/** The multiples of the row within the range. */
function countsOf({ counts, row: given = 1 }: InvarianceQuestion): Counts {
  const from = wholeNumber("counts.from", counts?.from, 1);
  const to = wholeNumber("counts.to", counts.to, 1);
  if (to < from) throw invalid(subject, "counts", `${from}..${to}`, "the smaller count first");
  const row = wholeNumber("row", given, 1);
  const range = { from: row * Math.ceil(from / row), to: row * Math.floor(to / row), row };
  if (range.from <= range.to) return range;
  throw invalid(subject, "row", `${row}`, `a multiple of it in ${from}..${to}`);
}

function askOf(
  ask: readonly Dependence[] | undefined,
  sizes: Readonly<Record<"ranks" | "hosts" | "version", number>>,
): readonly Dependence[] {
  const hasOne = (name: Dependence): boolean =>
    name in sizes && sizes[name as keyof typeof sizes] < 2;
  if (ask === undefined) return dependences.filter((name) => !hasOne(name));
  for (const name of ask) {
    if (!dependences.includes(name)) {
      throw invalid(subject, "ask", textOf(name), `some of ${dependences.join(", ")}`);
    }
    if (!hasOne(name)) continue;
    const field = { ranks: "number of ranks", hosts: "topology", version: "version" };
    const found = `"${name}" with one ${field[name as keyof typeof field]}`;
    throw invalid(subject, "ask", found, "several to compare");
  }
  return dependences.filter((name) => ask.includes(name));
}

/** The calls of a question on a number of ranks. */
export function requestOf(
  { collective, dtype, op, root, environment, versions, topologies }: Resolved,
  ranks: number,
): CallRequest {
  return {
    version: versions[0] as string,
    topology: (topologies[0] as TopologyOf)(ranks),
    ...{ collective, dtype, op, root },
    settings: environment.settings,
    forced: environment.forced,
  };
}
