/**
 * The file format of recorded results: one JSON object a line, one call an object, with the recorder's short names.
 *
 * A first line with the field `golden` gives version, library and machine; a file without one is of version 1, NCCL 2.28.9 and
 * eight H200. A line that is read and written again is unchanged.
 */
import type { TopologyOption } from "../algorithms/index.ts";
import type { DType } from "../api/index.ts";
import type { GoldenCase } from "./case.ts";

/** A plan as far as NCCL logs it. */
export interface GoldenPlan {
  readonly algorithm: string;
  readonly protocol: string;
  readonly channels: number;
}

/** The result of a call. */
export interface GoldenResult {
  /** Hash of the canonical output; by rank where each has its own. */
  readonly hashes: string | readonly string[];
  /** The canonical output itself, byte by byte in hexadecimal; short ones may be recorded. */
  readonly bits?: string | readonly string[] | undefined;
  /** The library's report of its work. */
  readonly plan?: GoldenPlan | undefined;
}

/** A recorded call. */
export type GoldenRecord = GoldenCase & GoldenResult;

/** The subject of a file. */
export interface GoldenHead {
  /** Library and version, such as `nccl-2.28.9`. */
  readonly library: string;
  /** The machine: a name, hosts with a network, or NCCL's graph files as `{ "xml": text }`. */
  readonly topology: TopologyOption;
}

/** The version of the format. */
export const formatVersion = 1;

/** The subject of a file without a first line of its own. */
export const defaultHead: GoldenHead = { library: "nccl-2.28.9", topology: "h200x8" };

/** The recorder's names of element types. */
export const dtypeNames = {
  i8: "int8",
  u8: "uint8",
  i32: "int32",
  u32: "uint32",
  i64: "int64",
  u64: "uint64",
  f16: "float16",
  f32: "float32",
  f64: "float64",
  bf16: "bfloat16",
  e4m3: "float8e4m3",
  e5m2: "float8e5m2",
} as const satisfies Readonly<Record<string, DType>>;

const shortNames = Object.fromEntries(
  Object.entries(dtypeNames).map(([short, dtype]) => [dtype, short]),
) as Readonly<Record<DType, string>>;

/** The name of a call, which its inputs are drawn from. */
export function idOf(golden: GoldenCase): string {
  const { environment, ranks, collective, dtype, op, count, values, inPlace, offset } = golden;
  const id = [ranks, demandOf(golden), collective, shortNames[dtype], op, count, values].join("/");
  return environment === undefined ? id : `${environment}/${id}/${inPlace ? 1 : 0}/${offset}`;
}

/** `default`, or the forced algorithm and protocol: `Ring-LL`. */
function demandOf({ forced }: GoldenCase): string {
  return forced === undefined ? "default" : `${forced.algorithm}-${forced.protocol}`;
}

/** The first line of a file. */
export function headLine({ library, topology }: GoldenHead): string {
  return JSON.stringify({ golden: formatVersion, library, topology });
}

/** The line of a call, with its result where there is one. */
export function lineOf(golden: GoldenCase & Partial<GoldenResult>): string {
  const { environment, ranks, collective, dtype, op, count, values, root } = golden;
  const named = environment !== undefined;
  // In the recorder's order; JSON leaves out undefined fields.
  return JSON.stringify({
    env: environment,
    n: ranks,
    ap: demandOf(golden),
    coll: collective,
    dt: shortNames[dtype],
    op,
    count,
    cls: values,
    inplace: named ? golden.inPlace : undefined,
    offset: named ? golden.offset : undefined,
    root,
    h: golden.hashes,
    bits: golden.bits,
    plan: golden.plan,
  });
}
