/** The arguments of commands by their usual names: collectives, sizes, dtypes, operators and roots; guesses at misspelt ones. */
import { type LinkOptions, linkBounds, linkOf } from "../algorithms/timing.ts";
import {
  type CollectiveName,
  type DType,
  dtypes,
  InvalidArgumentError,
  type NamedReduceOp,
  namedReduceOps,
} from "../api/index.ts";
import { nearest } from "../api/nearest.ts";
import {
  findCollective,
  type MeasuredCollective,
  measuredCollectives,
  parseSize,
  type SizeSweep,
} from "../bench/index.ts";
import { callSizes } from "../bench/sizes.ts";
import { UsageError } from "./context.ts";
import { type Option, oneOf, type Parsed, wordsOf } from "./options.ts";

/** nccl-tests' names that differ. */
const dtypeAliases: ReadonlyMap<string, DType> = new Map([
  ["char", "int8"],
  ["half", "float16"],
  ["float", "float32"],
  ["double", "float64"],
  ["f8e4m3", "float8e4m3"],
  ["f8e5m2", "float8e5m2"],
]);

/** Help of an option that takes one operator. */
export const opHelp = `${namedReduceOps.slice(0, -1).join(", ")} or ${namedReduceOps.at(-1)} (sum)`;

/** Ranks of a world on the command line, at most: each is an object of this process. */
export const maxRanks = 131_072;

/** The collective of a command's first argument; `names` are those that the command takes. */
export function parseCollective(
  name: string | undefined,
  names: readonly string[] = measuredCollectives.map(({ collective }) => collective),
): MeasuredCollective {
  const row = name === undefined ? undefined : findCollective(name);
  if (row !== undefined) return row;
  const what = name === undefined ? "name a collective" : `"${name}" is no collective`;
  const hint = name === undefined ? "" : collectiveHint(name, names);
  throw new UsageError(`${what}; collectives are ${names.join(", ")}${hint}`);
}

/** One dtype by either name. */
export function parseDtype(text: string): DType {
  const dtype = dtypeAliases.get(text) ?? dtypes.find((each) => each === text);
  if (dtype !== undefined) return dtype;
  const names = `one of ${dtypes.join(", ")}; or ${[...dtypeAliases.keys()].join(", ")}, as nccl-tests has them`;
  throw new UsageError(`--dtype: found "${text}", needs ${names}`);
}

/** The dtypes of `--dtype`. */
export function parseDtypes(text = "float32"): readonly DType[] {
  return text === "all" ? dtypes : wordsOf("--dtype", text).map(parseDtype);
}

/** The operators of `--op`. */
export function parseOps(text = "sum"): readonly NamedReduceOp[] {
  if (text === "all") return namedReduceOps;
  return wordsOf("--op", text).map((op) => oneOf("--op", op, namedReduceOps));
}

/** The roots of `--root`. */
export function parseRoots(text: string | undefined, ranks: number): readonly number[] {
  if (text === undefined) return [0];
  const every = Array.from({ length: ranks }, (_, rank) => rank);
  if (text === "all") return every;
  const root = every.find((rank) => String(rank) === text);
  if (root !== undefined) return [root];
  throw new UsageError(`--root: found "${text}", needs all or a rank in 0..${ranks - 1}`);
}

/** The root of one call; -1 where the collective has none. */
export function rootOf({ rooted }: MeasuredCollective, root: number, ranks: number): number {
  if (!rooted) return -1;
  if (root < ranks) return root;
  throw new UsageError(`--root: found ${root}, needs a rank in 0..${ranks - 1}`);
}

/** Options of a call that not every collective has. */
type CallOption = "root" | "op" | "dtype" | "count" | keyof typeof sweepOptions;

/** Refuses those of a command that the collective would ignore. */
export function refuseUnused<Name extends CallOption>(
  { collective, rooted, reduces, moves }: MeasuredCollective,
  parsed: { readonly has: (name: Name) => boolean },
  names: readonly Name[],
): void {
  const isUsed = (name: CallOption): boolean =>
    name === "root" ? rooted : name === "op" ? reduces : moves;
  const unused = names.find((name) => parsed.has(name) && !isUsed(name));
  if (unused !== undefined) throw new UsageError(`--${unused}: ${collective} has none`);
}

/** The options of a sweep over sizes: nccl-tests' letters. */
export const sweepOptions = {
  minbytes: { short: "b", value: "SIZE", help: "smallest size, such as 8, 1K or 16M (8)" },
  maxbytes: { short: "e", value: "SIZE", help: "largest size (16M, or SIZE of -b if larger)" },
  stepfactor: { short: "f", value: "N", help: "each size is N times the one before (2)" },
  stepbytes: { short: "i", value: "SIZE", help: "add SIZE from one size to the next instead" },
} as const;

type SweepOptions = typeof sweepOptions;

/** Their names. */
export const sizeOptions = Object.keys(sweepOptions) as readonly (keyof SweepOptions)[];

/** The sweep of `-b -e -f -i`. */
export function sizesOf(parsed: Parsed<SweepOptions>): SizeSweep {
  const min = size(parsed, "minbytes", 8);
  const max = size(parsed, "maxbytes", Math.max(min, 2 ** 24));
  if (max < min) {
    throw new UsageError(`--maxbytes: found ${max}, needs at least --minbytes, ${min}`);
  }
  if (parsed.has("stepbytes")) {
    if (parsed.has("stepfactor")) throw new UsageError("--stepfactor or --stepbytes, not both");
    const step = size(parsed, "stepbytes", 1);
    if (step > 0) return { min, max, step };
    throw new UsageError("--stepbytes: found 0, needs at least 1");
  }
  const factor = parsed.integer("stepfactor", 2, 2);
  if (min === 0 && max > 0)
    throw new UsageError("--minbytes 0 needs --stepbytes: 0 times a factor is 0");
  return { min, max, factor };
}

/** The options of a sweep's fields. */
const sweepFields: Readonly<Record<string, string>> = {
  min: "minbytes",
  max: "maxbytes",
  factor: "stepfactor",
  step: "stepbytes",
};

/**
 * The possible sizes of `-b -e -f -i` by dtype.
 *
 * @throws UsageError that names the option of a sweep without any.
 */
export function callSizesOf(
  parsed: Parsed<SweepOptions>,
  calls: Parameters<typeof callSizes>[1],
): ReturnType<typeof callSizes> {
  const sizes = sizesOf(parsed);
  try {
    return callSizes(sizes, calls);
  } catch (error) {
    const field = error instanceof InvalidArgumentError ? error.field : undefined;
    const option = field === undefined ? undefined : sweepFields[field];
    if (option === undefined) throw error;
    const { message } = error as Error;
    throw new UsageError(message.replace(`sizes: ${field}`, `--${option}`));
  }
}

function size(
  parsed: Parsed<SweepOptions>,
  name: "minbytes" | "maxbytes" | "stepbytes",
  fallback: number,
): number {
  const text = parsed.text(name);
  const bytes = text === undefined ? fallback : parseSize(text);
  if (bytes !== undefined) return bytes;
  throw new UsageError(`--${name}: found "${text}", needs a size such as 8, 1K or 16M`);
}

/** The parsed options of a link between ranks. */
type ParsedLink = Pick<
  Parsed<Record<"latency-ns" | "gigabytes-per-second", Option>>,
  "has" | "decimal"
>;

/** The link of its options; `link` has what they leave out. */
export function linkIn(
  parsed: ParsedLink,
  { latencyPs, gigabytesPerSecond } = linkOf(),
): LinkOptions {
  const { latencyNs: latencies, gigabytesPerSecond: rates } = linkBounds;
  return {
    latencyNs: parsed.decimal("latency-ns", latencyPs / 1000, latencies),
    gigabytesPerSecond: parsed.decimal("gigabytes-per-second", gigabytesPerSecond, rates),
  };
}

/** The same; `undefined` without such an option. */
export function linkAsked(parsed: ParsedLink): LinkOptions | undefined {
  const isAsked = parsed.has("latency-ns") || parsed.has("gigabytes-per-second");
  return isAsked ? linkIn(parsed) : undefined;
}

/** The likely intended words after `twinccl`; `undefined` without a similar command. */
export function suggestedCommand(word: string, names: readonly string[]): string | undefined {
  const collective = collectiveNamed(word);
  if (collective !== undefined) return `bench ${collective}, with nccl-tests' options`;
  if (/\.[cm]?[jt]s$/.test(word)) return `run ${word}, or launch -n N ${word}`;
  const near = names
    .map((name) => ({ name, apart: distance(word.toLowerCase(), name) }))
    .filter(({ name, apart }) => apart <= Math.min(2, name.length - 2))
    .sort((a, b) => a.apart - b.apart);
  return near[0]?.name;
}

/** The collective of a program of nccl-tests, such as `all_reduce_perf`, or of a name in any spelling. */
function collectiveNamed(word: string): CollectiveName | undefined {
  return findCollective(word.replace(/_perf(_mpi)?$/, ""))?.collective;
}

/** A hint at the command's collectives whose names resemble an unknown word. */
export function collectiveHint(word: string, names: readonly string[]): string {
  const meant = collectiveNamed(word);
  const near = meant === undefined ? nearest(word.replace(/[-_]/g, ""), names) : [meant];
  const [first] = near.filter((name) => names.includes(name));
  return first === undefined ? "" : `\nhint: write ${first}`;
}

/** Edit distance of two words. */
function distance(a: string, b: string): number {
  let above = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const [left, up, corner] = [row[j - 1], above[j], above[j - 1]] as [number, number, number];
      row.push(Math.min(left + 1, up + 1, corner + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    above = row;
  }
  return above[b.length] as number;
}
