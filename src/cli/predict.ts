/** `twinccl predict`: finds the fastest algorithm for each size, given the number of ranks and a machine. Sizes only. */
import {
  type Algorithm,
  algorithmsOf,
  builtCollectives,
  fatTree,
  isTooLarge,
  linkOf,
  type Prediction,
  predict,
  torus,
  type Wiring,
} from "../algorithms/index.ts";
import { linkBounds } from "../algorithms/timing.ts";
import { bytesOf, type SpecifiedCollective } from "../api/index.ts";
import { sizeText } from "../bench/index.ts";
import { callSizes } from "../bench/sizes.ts";
import {
  algorithmFileHelp,
  type ChosenAlgorithm,
  namedAlgorithm,
  userAlgorithmText,
  type VerifiedWorlds,
  verifyUserAlgorithm,
} from "./algorithms.ts";
import { parseCollective, parseDtype, sizesOf, sweepOptions } from "./args.ts";
import { type Command, type Context, UsageError } from "./context.ts";
import { outputFile } from "./files.ts";
import { type OptionTable, oneOf, optionLines, type Parsed, parseOptions } from "./options.ts";
import { Progress } from "./output.ts";

/** Most ranks of a prediction. */
const maxPredicted = 2 ** 20;

const topologies = ["crossbar", "fat-tree", "torus", "ring"] as const;

const options = {
  ranks: { short: "n", value: "N", help: "number of ranks, up to 1048576 (8)" },
  ...sweepOptions,
  dtype: { short: "d", value: "TYPE", help: "element type (float32)" },
  root: { short: "r", value: "RANK", help: "root (0)" },
  algorithm: {
    value: "NAMES",
    help: "only these algorithms, or FILEs', with commas between (all)",
  },
  topology: { value: "NAME", help: `${topologies.join(", ")} (crossbar)` },
  groups: {
    value: "A,B,…",
    help: "fat-tree: ranks below a switch, such switches below the next (8)",
  },
  oversubscription: { value: "X", help: "fat-tree: ports below over width above, each level (1)" },
  dimensions: { value: "AxBx…", help: "torus: ranks in each dimension" },
  "latency-ns": { value: "NS", help: "from one rank to another, without shared links (1000)" },
  "overhead-ns": { value: "NS", help: "that each message holds a port beside its bytes (100)" },
  "hop-latency-ns": { value: "NS", help: "of each shared link on the way (500)" },
  "gigabytes-per-second": { value: "GBPS", help: "of a rank's port in each direction (400)" },
  credits: { value: "N", help: "messages between two ranks before the sender waits (any number)" },
  json: { help: "print one JSON document instead of the table" },
  out: { value: "FILE", help: "also write the JSON document to FILE" },
} as const satisfies OptionTable;

type PredictOptions = Parsed<typeof options>;

/** Blocks of equal length: no skew. */
const noSkew = { spread: 0, seed: 0 };

const predicted: readonly SpecifiedCollective[] = builtCollectives.filter(
  (name) => !name.endsWith("v"),
);

/** The `predict` command. */
export const command: Command = {
  help: `Usage: twinccl predict COLLECTIVE [options]

Predicts the time of every algorithm of the catalogue, a row a size, and marks the best one (*).
Nothing runs and nothing is measured: docs/predict.md tells what the model holds and leaves out.
COLLECTIVE: ${predicted.join(" ")}

${optionLines(options)}
${algorithmFileHelp}
Examples:
  twinccl predict all-reduce --ranks 4096 -b 1K -e 256M -f 16
  twinccl predict all-reduce --ranks 4096 --topology fat-tree --groups 8,32 --oversubscription 2
  twinccl predict all-reduce --ranks 64 --algorithm ring,./line.mjs
  twinccl predict all-to-all --ranks 512 --topology torus --dimensions 8x8x8 --json

Exit status: 0, or 2 for wrong usage.
`,
  run: runPredict,
};

async function runPredict(args: readonly string[], context: Context): Promise<number> {
  const parsed = parseOptions(args, options, 1);
  const row = parseCollective(parsed.positionals[0], predicted);
  const { collective, rooted, busFactor } = row;
  const built = predicted.find((name) => name === collective);
  if (built === undefined) throw new UsageError(`${collective} has no algorithms to compare`);
  const ranks = parsed.integer("ranks", 8, 1, maxPredicted);
  const root = parsed.integer("root", 0, 0, ranks - 1);
  if (!rooted && parsed.has("root")) throw new UsageError(`--root: ${collective} has none`);
  const dtype = parseDtype(parsed.text("dtype") ?? "float32");
  const bytesPerElement = bytesOf(dtype);
  const worlds = { ranks, roots: [root] };
  const { algorithms, own } = await selectedAlgorithms(built, parsed.text("algorithm"), worlds);
  const topology = topologyOf(parsed, ranks);
  const link = linkOf({
    latencyNs: decimal(parsed, "latency-ns", 1000, linkBounds.latencyNs),
    gigabytesPerSecond: decimal(parsed, "gigabytes-per-second", 400, linkBounds.gigabytesPerSecond),
  });
  const overheadPs = Math.round(1000 * decimal(parsed, "overhead-ns", 100, linkBounds.latencyNs));
  const hopLatencyPs = Math.round(
    1000 * decimal(parsed, "hop-latency-ns", 500, linkBounds.latencyNs),
  );
  const credits = parsed.has("credits") ? parsed.integer("credits", 1, 1, 1024) : undefined;
  const write = outputFile("--out", parsed.text("out"));
  const progress = new Progress(context);
  const machine = { bytesPerElement, link, overheadPs, topology, hopLatencyPs, credits };
  const calls = { collective: row, dtypes: [dtype], ranks, skew: noSkew };
  const [sizes = []] = callSizes(sizesOf(parsed), calls);
  const rows = sizes.map((bytes) => {
    const shape = row.shape(Math.floor(bytes / bytesPerElement), ranks, noSkew);
    const { count } = shape;
    const size = shape.sizeElements * bytesPerElement;
    const found = algorithms.map((algorithm) => {
      const what = `predicting ${algorithm.name}, ${sizeText(size)} on ${ranks} ranks`;
      progress.show(what);
      const onProgress = (received: number): void =>
        progress.show(`${what}: ${(received / 1e6).toFixed(1)} million messages`);
      const call = { collective: built, algorithm, ranks, root, count, ...machine };
      return ifPredictable(() => predict({ ...call, onProgress }));
    });
    return { size, count, found };
  });
  progress.clear();
  const facts = {
    collective,
    ranks,
    dtype,
    topology: topology?.name ?? "crossbar",
    latencyNs: link.latencyPs / 1000,
    overheadNs: overheadPs / 1000,
    hopLatencyNs: topology === undefined ? 0 : hopLatencyPs / 1000,
    gigabytesPerSecond: link.gigabytesPerSecond,
    ...(credits === undefined ? {} : { credits }),
  };
  const table = {
    machine: facts,
    names: algorithms.map(({ name }) => name),
    own,
    rows,
    bus: busFactor(ranks),
  };
  const document = `${JSON.stringify(predictionDocument(table), null, 2)}\n`;
  context.out(parsed.has("json") ? document : predictionTable(table));
  write?.(document);
  return 0;
}

/** The prediction; `undefined` for a program that is too large to be timed. */
function ifPredictable(ask: () => Prediction): Prediction | undefined {
  try {
    return ask();
  } catch (error) {
    if (isTooLarge(error)) return undefined;
    throw error;
  }
}

function topologyOf(parsed: PredictOptions, ranks: number): Wiring | undefined {
  const name = oneOf("--topology", parsed.text("topology") ?? "crossbar", topologies);
  for (const [option, of] of [
    ["groups", "fat-tree"],
    ["oversubscription", "fat-tree"],
    ["dimensions", "torus"],
  ] as const) {
    if (parsed.has(option) && name !== of) throw new UsageError(`--${option} goes with ${of}`);
  }
  if (parsed.has("hop-latency-ns") && name === "crossbar") {
    throw new UsageError("--hop-latency-ns: a crossbar has no shared links");
  }
  if (name === "fat-tree") {
    const groups = numbers("--groups", parsed.text("groups") ?? "8", ",");
    return fatTree(ranks, groups, decimal(parsed, "oversubscription", 1, [1, 1e6]));
  }
  if (name === "ring") return torus([ranks]);
  if (name !== "torus") return undefined;
  const text = parsed.text("dimensions");
  if (text === undefined) throw new UsageError("--topology torus needs --dimensions, such as 8x8");
  const dimensions = numbers("--dimensions", text, "x");
  const product = dimensions.reduce((all, size) => all * size, 1);
  if (product === ranks) return torus(dimensions);
  throw new UsageError(`--dimensions: ${text} makes ${product} ranks, --ranks says ${ranks}`);
}

function numbers(option: string, text: string, between: string): number[] {
  const found = text.split(between).map(Number);
  if (found.every((each) => Number.isSafeInteger(each) && each >= 1)) return found;
  throw new UsageError(`${option}: found "${text}", needs whole numbers with "${between}" between`);
}

function decimal(
  parsed: PredictOptions,
  name:
    | "latency-ns"
    | "overhead-ns"
    | "hop-latency-ns"
    | "gigabytes-per-second"
    | "oversubscription",
  fallback: number,
  [least, most]: readonly [number, number],
): number {
  const text = parsed.text(name);
  const value = text === undefined ? fallback : Number(text);
  if (text?.trim() !== "" && value >= least && value <= most) return value;
  throw new UsageError(`--${name}: found "${text}", needs a number in ${least}..${most}`);
}

/** The compared algorithms. */
interface Compared {
  /** Algorithms of the catalogue in its order, then the user's. */
  readonly algorithms: readonly Algorithm[];
  /** Origins of the user's algorithms, and their verified ranks. */
  readonly own: readonly UserRow[];
}

/** A user's algorithm. */
interface UserRow {
  readonly algorithm: string;
  readonly file: string;
  readonly soundOn: number;
  /** One line of text with these facts. */
  readonly text: string;
}

/**
 * The algorithms of a comma-separated list of names and files, or the whole catalogue. User's algorithms are verified.
 *
 * @throws UsageError for unknown names and duplicates. InvalidArgumentError for an algorithm that is not sound.
 */
async function selectedAlgorithms(
  collective: SpecifiedCollective,
  text: string | undefined,
  worlds: VerifiedWorlds,
): Promise<Compared> {
  const all = algorithmsOf(collective);
  if (text === undefined) return { algorithms: all, own: [] };
  const chosen: ChosenAlgorithm[] = [];
  for (const word of text.split(",")) {
    chosen.push(await namedAlgorithm("--algorithm", collective, word));
  }
  const owned = chosen.flatMap(({ own }) => own ?? []);
  const known = all.filter((each) => chosen.some(({ choice }) => choice === each.name));
  const algorithms = [...known, ...owned.map(({ algorithm }) => algorithm)];
  const names = algorithms.map(({ name }) => name);
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  if (twice !== undefined) {
    throw new UsageError(`--algorithm: two are called "${twice}"; give yours another name`);
  }
  const own = owned.map((each) => {
    const soundOn = verifyUserAlgorithm(each, worlds);
    const { algorithm, file } = each;
    return {
      algorithm: algorithm.name,
      file,
      soundOn,
      text: userAlgorithmText(each, soundOn, worlds.ranks),
    };
  });
  return { algorithms, own };
}

/** The predictions. */
interface Predictions {
  readonly machine: Readonly<Record<string, string | number>>;
  /** Names of the algorithms, in the order of `found`. */
  readonly names: readonly string[];
  /** Note on the user's algorithms. */
  readonly own: readonly UserRow[];
  readonly rows: readonly {
    readonly size: number;
    readonly count: number;
    /** By algorithm; `undefined` if the program is too large. */
    readonly found: readonly (Prediction | undefined)[];
  }[];
  /** Bus bandwidth over algorithm bandwidth. */
  readonly bus: number;
}

/** Index of the fastest; among equal ones the first. */
function bestOf(found: readonly (Prediction | undefined)[]): number {
  let best = -1;
  found.forEach((each, at) => {
    if (each !== undefined && each.timePs < (found[best]?.timePs ?? Infinity)) best = at;
  });
  return best;
}

/** One document: the request, and a result a size with every algorithm's time in microseconds. */
function predictionDocument({ machine, names, own, rows, bus }: Predictions): object {
  const results = rows.map(({ size, count, found }) => ({
    size,
    count,
    best: names[bestOf(found)] ?? null,
    predictions: names.map((algorithm, at) => {
      const each = found[at];
      if (each === undefined) return { algorithm, time: null, reason: "too large" };
      const { timePs, messages, sentElements, engine } = each;
      const time = timePs / 1e6;
      const bus_bw = timePs === 0 ? null : (bus * size * 1000) / timePs;
      return { algorithm, time, bus_bw, messages, sent_elements: sentElements, engine };
    }),
  }));
  const ownAlgorithms = own.map(({ algorithm, file, soundOn }) => ({
    algorithm,
    file,
    sound_on: soundOn,
  }));
  return {
    predicted: true,
    ...machine,
    ...(ownAlgorithms.length > 0 && { own: ownAlgorithms }),
    results,
  };
}

/** Times in microseconds, a row a size; `*` marks the fastest, `-` a program that is too large. */
function predictionTable({ machine, names, own, rows }: Predictions): string {
  const facts = Object.entries(machine).map(([name, value]) => `${name} ${value}`);
  const cells = rows.map(({ size, found }) => {
    const best = bestOf(found);
    const times = found.map((each, at) => {
      if (each === undefined) return "- ";
      return `${timeText(each.timePs / 1e6)}${at === best ? "*" : " "}`;
    });
    return [`${size === 0 ? "0" : sizeText(size)} `, ...times];
  });
  const head = ["size ", ...names.map((name) => `${name} `)];
  const widths = head.map((title, at) =>
    Math.max(title.length, ...cells.map((row) => (row[at] ?? "").length)),
  );
  const line = (row: readonly string[]): string =>
    row.map((cell, at) => cell.padStart((widths[at] ?? 0) + 2)).join("");
  return [
    `# predicted, not measured: ${facts.join(", ")}`,
    ...own.map(({ text }) => `# ${text}`),
    `#${line(head).slice(1).trimEnd()}   (us, * fastest)`,
    ...cells.map((row) => line(row).trimEnd()),
    ...(rows.some(({ found }) => found.includes(undefined))
      ? ["# -: a program too large to be timed; take a size that the ranks divide, or fewer ranks"]
      : []),
    "",
  ].join("\n");
}

function timeText(us: number): string {
  return us >= 1000 ? us.toFixed(0) : us.toPrecision(4);
}
