/** Reads files of recorded results, and of calls to be recorded. What is not in the format is refused by name. */
import { ncclVersions, topologies } from "../algorithms/index.ts";
import { bytesOf, namedReduceOps } from "../api/index.ts";
import { type EnvironmentName, environments, type GoldenCase } from "./case.ts";
import { Fields, GoldenFormatError } from "./fields.ts";
import {
  defaultHead,
  dtypeNames,
  formatVersion,
  type GoldenHead,
  type GoldenPlan,
  type GoldenRecord,
  type GoldenResult,
} from "./format.ts";

/** The contents of a file. */
export interface GoldenFile<C> {
  readonly head: GoldenHead;
  readonly cases: readonly C[];
  /** The line of each case, counted from 1. */
  readonly lines: readonly number[];
  /** Fields that this version does not know, and did not look at. */
  readonly unknownFields: readonly string[];
}

/**
 * Reads recorded calls; `file` is the name for messages.
 *
 * @throws GoldenFormatError for a line that is not in the format, another version of it, or no line at all.
 */
export function readRecords(text: string, file: string): GoldenFile<GoldenRecord> {
  return readFile(text, file, (fields) => {
    const golden = caseOf(fields);
    return { ...golden, ...resultOf(fields, golden) };
  });
}

/** Reads calls alone; results that stand beside them are not looked at. Throws as `readRecords` does. */
export function readCases(text: string, file: string): GoldenFile<GoldenCase> {
  return readFile(text, file, (fields) => {
    fields.pass("h", "bits", "plan");
    return caseOf(fields);
  });
}

function readFile<C>(text: string, file: string, read: (fields: Fields) => C): GoldenFile<C> {
  const cases: C[] = [];
  const lines: number[] = [];
  const unknown = new Set<string>();
  let head: GoldenHead | undefined;
  for (const [at, line] of text.split("\n").entries()) {
    if (line.trim() === "") continue;
    const fields = new Fields(line, { file, line: at + 1 });
    if (head === undefined && cases.length === 0 && fields.has("golden")) head = headOf(fields);
    else {
      cases.push(read(fields));
      lines.push(at + 1);
    }
    for (const field of fields.unread()) unknown.add(field);
  }
  if (cases.length === 0) throw new GoldenFormatError({ file }, "holds no recorded call");
  return { head: head ?? defaultHead, cases, lines, unknownFields: [...unknown] };
}

function headOf(fields: Fields): GoldenHead {
  if (fields.raw("golden") !== formatVersion) {
    throw fields.fault("golden", `version ${formatVersion} of the format`);
  }
  const libraries = ncclVersions.map((version) => `nccl-${version}`);
  return {
    library: fields.word("library", libraries),
    topology: fields.word("topology", Object.keys(topologies) as (keyof typeof topologies)[]),
  };
}

const algorithms = ["Ring", "Tree"] as const;
const protocols = ["Simple", "LL", "LL128"] as const;

/** Elements of a call, at most: all that eight ranks send still fits one TypedArray. */
const mostElements = 2 ** 29;

const demands = new Map<string, GoldenCase["forced"]>([
  ["default", undefined],
  ...algorithms.flatMap((algorithm) =>
    protocols.map((protocol) => [`${algorithm}-${protocol}`, { algorithm, protocol }] as const),
  ),
]);

function caseOf(fields: Fields): GoldenCase {
  const ranks = fields.integer("n", 1);
  const collective = fields.word("coll", ["allReduce", "reduceScatter", "reduce"]);
  const short = fields.word("dt", Object.keys(dtypeNames) as (keyof typeof dtypeNames)[]);
  const named = fields.has("env");
  return {
    ranks,
    forced: demands.get(fields.word("ap", [...demands.keys()])),
    collective,
    dtype: dtypeNames[short],
    op: fields.word("op", [...namedReduceOps, "preMul"]),
    count: fields.integer("count", 0, mostElements),
    values: fields.word("cls", ["norm", "wild"]),
    root: collective === "reduce" ? fields.integer("root", 0, ranks - 1) : undefined,
    environment: named
      ? fields.word("env", Object.keys(environments) as EnvironmentName[])
      : undefined,
    inPlace: named && fields.has("inplace") ? fields.boolean("inplace") : false,
    offset: named && fields.has("offset") ? fields.integer("offset", 0, mostElements) : 0,
  };
}

function resultOf(fields: Fields, { collective, ranks, dtype, count }: GoldenCase): GoldenResult {
  const lists = collective === "reduceScatter" ? ranks : undefined;
  return {
    hashes: fields.hex("h", 16, lists),
    ...(fields.has("bits") && { bits: fields.hex("bits", 2 * count * bytesOf(dtype), lists) }),
    ...(fields.has("plan") && { plan: planOf(fields) }),
  };
}

function planOf(fields: Fields): GoldenPlan {
  const { algorithm, protocol, channels } = (fields.raw("plan") ?? {}) as Partial<GoldenPlan>;
  const texts = typeof algorithm === "string" && typeof protocol === "string";
  if (texts && typeof channels === "number") return { algorithm, protocol, channels };
  throw fields.fault("plan", 'such as {"algorithm":"Ring","protocol":"LL","channels":4}');
}
