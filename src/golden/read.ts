/** Reads files of recorded results, and of calls to be recorded. Contents outside the format are refused by name. */
import {
  libraryNames,
  libraryOf,
  type TopologyName,
  type TopologyOption,
  topologies,
} from "../algorithms/index.ts";
import { machineOf } from "../algorithms/nccl/index.ts";
import { bytesOf, CommError, namedReduceOps } from "../api/index.ts";
import { type EnvironmentName, environments, type GoldenCase } from "./case.ts";
import {
  defaultHead,
  dtypeNames,
  formatVersion,
  type GoldenHead,
  type GoldenPlan,
  type GoldenRecord,
  type GoldenResult,
} from "./format.ts";
import { hashesOf } from "./outputs.ts";

/** The contents of a file. */
export interface GoldenFile<C> {
  readonly head: GoldenHead;
  readonly cases: readonly C[];
  /** The line of each case, counted from 1. */
  readonly lines: readonly number[];
  /** Unknown fields of this version, which were not read. */
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

/** Reads only calls; results beside them are ignored. Throws as `readRecords` does. */
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
  const library = fields.raw("library");
  if (typeof library !== "string" || libraryOf(library) === undefined) {
    throw fields.fault("library", `one of ${libraryNames.join(", ")}, or with a patch number`);
  }
  return { library, topology: topologyOf(fields) };
}

/** A machine by name, or one that its facts describe. */
function topologyOf(fields: Fields): TopologyOption {
  const given = fields.raw("topology");
  if (typeof given !== "object" || given === null) {
    return fields.word("topology", Object.keys(topologies) as TopologyName[]);
  }
  try {
    machineOf(given as TopologyOption);
    return given as TopologyOption;
  } catch (error) {
    if (!(error instanceof CommError)) throw error;
    throw fields.wrong("topology", error.message.split("\n")[0] as string);
  }
}

const algorithms = ["Ring", "Tree", "PAT"] as const;
const protocols = ["Simple", "LL", "LL128"] as const;

/** Most elements of a call: the data of eight ranks fits one TypedArray. */
const maxElements = 2 ** 29;

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
    count: fields.integer("count", 0, maxElements),
    values: fields.word("cls", ["norm", "wild"]),
    root: collective === "reduce" ? fields.integer("root", 0, ranks - 1) : undefined,
    environment: named
      ? fields.word("env", Object.keys(environments) as EnvironmentName[])
      : undefined,
    inPlace: named && fields.has("inplace") ? fields.boolean("inplace") : false,
    offset: named && fields.has("offset") ? fields.integer("offset", 0, maxElements) : 0,
  };
}

function resultOf(fields: Fields, { collective, ranks, dtype, count }: GoldenCase): GoldenResult {
  const lists = collective === "reduceScatter" ? ranks : undefined;
  const hashes = fields.hex("h", 16, lists);
  return {
    hashes,
    ...(fields.has("bits") && { bits: bitsOf(fields, 2 * count * bytesOf(dtype), lists, hashes) }),
    ...(fields.has("plan") && { plan: planOf(fields) }),
  };
}

/** The recorded bits, which must have the recorded hashes. */
function bitsOf(
  fields: Fields,
  digits: number,
  lists: number | undefined,
  hashes: string | readonly string[],
): string | readonly string[] {
  const bits = fields.hex("bits", digits, lists);
  const found = hashesOf([bits].flat().map((text) => Buffer.from(text, "hex")));
  const at = [hashes].flat().findIndex((hash, rank) => hash !== found[rank]);
  if (at < 0) return bits;
  const output = lists === undefined ? "the output" : `the output of rank ${at}`;
  throw fields.wrong("bits", `${output} has the hash ${found[at]}, h holds ${[hashes].flat()[at]}`);
}

function planOf(fields: Fields): GoldenPlan {
  const { algorithm, protocol, channels } = (fields.raw("plan") ?? {}) as Partial<GoldenPlan>;
  const texts = typeof algorithm === "string" && typeof protocol === "string";
  if (texts && typeof channels === "number") return { algorithm, protocol, channels };
  throw fields.fault("plan", 'such as {"algorithm":"Ring","protocol":"LL","channels":4}');
}

/** A place in a file. */
interface Place {
  readonly file: string;
  /** Counted from 1; left out for the whole file. */
  readonly line?: number;
}

/** A file of recorded results is invalid. The message names file, line and field. */
export class GoldenFormatError extends Error {
  readonly file: string;
  readonly line: number | undefined;
  readonly field: string | undefined;

  constructor({ file, line }: Place, fault: string, field?: string) {
    super(`${file}: ${line === undefined ? "" : `line ${line}: `}${fault}`);
    this.file = file;
    this.line = line;
    this.field = field;
  }

  override get name(): string {
    return "GoldenFormatError";
  }
}

/** One line. */
class Fields {
  readonly #place: Place;
  readonly #values: Readonly<Record<string, unknown>>;
  readonly #read = new Set<string>();

  constructor(line: string, place: Place) {
    this.#place = place;
    this.#values = objectOf(line, place);
  }

  has(field: string): boolean {
    return this.#values[field] !== undefined;
  }

  /** The value of a field, of any kind. */
  raw(field: string): unknown {
    this.#read.add(field);
    return this.#values[field];
  }

  /** A whole number. */
  integer(field: string, least = 0, most = Number.MAX_SAFE_INTEGER): number {
    const value = this.raw(field);
    if (Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most) {
      return value as number;
    }
    const range =
      most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `in ${least}..${most}`;
    throw this.fault(field, `a whole number ${range}`);
  }

  /** A word out of a list. */
  word<T extends string>(field: string, words: readonly T[]): T {
    const value = this.raw(field);
    const word = words.find((each) => each === value);
    if (word !== undefined) return word;
    throw this.fault(field, `one of ${words.join(", ")}`);
  }

  boolean(field: string): boolean {
    const value = this.raw(field);
    if (typeof value === "boolean") return value;
    throw this.fault(field, "true or false");
  }

  /** A text of `digits` hexadecimal digits, or a list of one text per rank. */
  hex(field: string, digits: number, ranks: number | undefined): string | readonly string[] {
    const value = this.raw(field);
    const isHex = (text: unknown): text is string =>
      typeof text === "string" && text.length === digits && /^[0-9a-f]*$/.test(text);
    if (ranks === undefined) {
      if (isHex(value)) return value;
      throw this.fault(field, `${digits} hexadecimal digits`);
    }
    if (Array.isArray(value) && value.length === ranks && value.every(isHex)) return value;
    throw this.fault(
      field,
      `a list of ${ranks} times ${digits} hexadecimal digits, one for each rank`,
    );
  }

  /** Counts fields as read. */
  pass(...fields: readonly string[]): void {
    for (const field of fields) this.#read.add(field);
  }

  /** Fields that were not read. */
  unread(): readonly string[] {
    return Object.keys(this.#values).filter((field) => !this.#read.has(field));
  }

  /** The fault of a field. */
  fault(field: string, needs: string): GoldenFormatError {
    const value = this.#values[field];
    const found = value === undefined ? "nothing" : (JSON.stringify(value).slice(0, 60) as string);
    return this.wrong(field, `found ${found}, needs ${needs}`);
  }

  /** The fault of a field in words of its own. */
  wrong(field: string, what: string): GoldenFormatError {
    return new GoldenFormatError(this.#place, `${field}: ${what}`, field);
  }
}

function objectOf(line: string, place: Place): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new GoldenFormatError(place, `is no JSON: ${why}`);
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    return value as Readonly<Record<string, unknown>>;
  }
  throw new GoldenFormatError(place, "needs a JSON object, one recorded call a line");
}
