/** `twinccl predict COLLECTIVE`: times of the catalogue's algorithms by size, and of NCCL's choices where a library is followed. */
import {
  builtCollectives,
  fatTree,
  isTooLarge,
  type Link,
  linkOf,
  type PlanQuestion,
  type Prediction,
  predict,
  torus,
  type Wiring,
} from "../../algorithms/index.ts";
import { linkBounds } from "../../algorithms/timing.ts";
import { countText } from "../../api/error-text.ts";
import { bytesOf, type DType, type SpecifiedCollective } from "../../api/index.ts";
import { type MeasuredCollective, sizeText } from "../../bench/index.ts";
import {
  callSizesOf,
  linkIn,
  parseCollective,
  parseDtype,
  refuseUnused,
  sizeOptions,
} from "../args.ts";
import { type Context, UsageError } from "../context.ts";
import { outputFile } from "../files.ts";
import { oneOf, wholeNumbers } from "../options.ts";
import { selectedAlgorithms } from "./compared.ts";
import { type ChoiceTime, type Library, LibraryCalls, libraryIn } from "./library.ts";
import { type PredictOptions, refuseSameOutputs, wirings } from "./options.ts";
import { sizesPicture } from "./sizes-picture.ts";
import { type PredictedSizes, predictionDocument, predictionTable, type SizeRow } from "./table.ts";

/** Most ranks of a prediction. */
const maxPredicted = 2 ** 20;

/** Blocks of equal length: no skew. */
const noSkew = { spread: 0, seed: 0 };

/** The collectives with algorithms to compare. */
export const predicted: readonly SpecifiedCollective[] = builtCollectives.filter(
  (name) => !name.endsWith("v"),
);

/** The call of all sizes. */
interface SizedCall {
  readonly row: MeasuredCollective;
  readonly collective: SpecifiedCollective;
  readonly ranks: number;
  readonly root: number;
  readonly dtype: DType;
}

/** Prints the table or the document, and draws the picture. */
export async function predictSizes(parsed: PredictOptions, context: Context): Promise<void> {
  const call = callIn(parsed);
  const { row, collective, ranks, root, dtype } = call;
  const library = libraryIn(parsed);
  const calls = library && new LibraryCalls(library, ranks);
  const compared = await selectedAlgorithms(collective, parsed.text("algorithm"), {
    ranks,
    roots: [root],
  });
  const links = linksOf(parsed, ranks, library, calls?.messages);
  refuseSameOutputs(parsed);
  const write = outputFile("--out", parsed.text("out"));
  const draw = outputFile("--svg", parsed.text("svg"));
  const sweep = { collective: row, dtypes: [dtype], ranks, skew: noSkew };
  const [sizes = []] = callSizesOf(parsed, sweep);
  const rows = sizes.map((size): SizeRow => {
    const question = questionOf(call, size);
    const bytes = bytesAt(call, size);
    const found = compared.algorithms.map((algorithm) => {
      const what = `predicting ${algorithm.name}, ${sizeText(bytes)} on ${countText(ranks, "rank")}`;
      context.progress(what);
      const onProgress = (received: number): void =>
        context.progress(`${what}: ${(received / 1e6).toFixed(1)} million messages`);
      const { count } = question;
      const on = { ranks, root, count, bytesPerElement: bytesOf(dtype), ...links };
      return ifPredictable(() => predict({ collective, algorithm, ...on, onProgress }));
    });
    const [chosen, every] = [calls?.chosen(question), calls?.every(question) ?? []];
    return { bytes, count: question.count, found, chosen, every };
  });
  const table: PredictedSizes = {
    collective,
    library,
    machine: factsOf(call, links),
    hasOwnLinks: linkOptions.some((name) => parsed.has(name)),
    names: compared.algorithms.map(({ name }) => name),
    own: compared.own,
    rows,
    switches: calls === undefined ? [] : switchesOf(call, calls, rows),
    bus: row.busFactor(ranks),
  };
  const document = `${JSON.stringify(predictionDocument(table), null, 2)}\n`;
  context.out(parsed.has("json") ? document : predictionTable(table));
  write?.(document);
  draw?.(sizesPicture(table));
}

function callIn(parsed: PredictOptions): SizedCall {
  const row = parseCollective(parsed.positionals[0], predicted);
  const collective = predicted.find((name) => name === row.collective);
  if (collective === undefined) {
    throw new UsageError(`${row.collective} has no algorithms to compare`);
  }
  refuseUnused(row, parsed, ["root", "dtype", ...sizeOptions]);
  const ranks = parsed.integer("ranks", 8, 1, maxPredicted);
  const root = parsed.integer("root", 0, 0, ranks - 1);
  return { row, collective, ranks, root, dtype: parseDtype(parsed.text("dtype") ?? "float32") };
}

/** The links of the catalogue's algorithms. */
type Links = Pick<
  Parameters<typeof predict>[0],
  "link" | "overheadPs" | "topology" | "hopLatencyPs" | "credits"
> & { readonly link: Link; readonly overheadPs: number; readonly hopLatencyPs: number };

/** The options of links. */
const linkOptions = ["latency-ns", "overhead-ns", "gigabytes-per-second", "credits"] as const;

/** The links of the options; on a measured machine by default those of its messages. */
function linksOf(
  parsed: PredictOptions,
  ranks: number,
  library: Library | undefined,
  messages: Link | undefined,
): Links {
  const wiring = wiringOf(parsed, ranks, library !== undefined);
  const overheadNs = messages === undefined ? 100 : 0;
  return {
    link: linkOf(linkIn(parsed, messages)),
    overheadPs: Math.round(1000 * parsed.decimal("overhead-ns", overheadNs, linkBounds.latencyNs)),
    topology: wiring,
    hopLatencyPs: Math.round(1000 * parsed.decimal("hop-latency-ns", 500, linkBounds.latencyNs)),
    credits: parsed.has("credits") ? parsed.integer("credits", 1, 1, 1024) : undefined,
  };
}

/** The shared links of `--topology`; `undefined` for a crossbar, which has none. */
function wiringOf(parsed: PredictOptions, ranks: number, onMachine: boolean): Wiring | undefined {
  const named = onMachine ? undefined : parsed.text("topology");
  const name = oneOf("--topology", named ?? "crossbar", wirings);
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
    const groups = wholeNumbers("--groups", (parsed.text("groups") ?? "8").split(","), "commas");
    return fatTree(ranks, groups, parsed.decimal("oversubscription", 1, [1, 1e6]));
  }
  if (name === "ring") return torus([ranks]);
  if (name !== "torus") return undefined;
  const text = parsed.text("dimensions");
  if (text === undefined) throw new UsageError("--topology torus needs --dimensions, such as 8x8");
  const dimensions = wholeNumbers("--dimensions", text.split("x"), "x");
  const product = dimensions.reduce((all, size) => all * size, 1);
  if (product === ranks) return torus(dimensions);
  throw new UsageError(`--dimensions: ${text} makes ${product} ranks, --ranks says ${ranks}`);
}

/** The call and the links, for the first line and the document. */
function factsOf({ collective, ranks, dtype }: SizedCall, links: Links): PredictedSizes["machine"] {
  const { link, overheadPs, topology, hopLatencyPs, credits } = links;
  return {
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
}

function shapeAt({ row, ranks, dtype }: SizedCall, size: number): ReturnType<typeof row.shape> {
  return row.shape(Math.floor(size / bytesOf(dtype)), ranks, noSkew);
}

function bytesAt(call: SizedCall, size: number): number {
  return shapeAt(call, size).sizeElements * bytesOf(call.dtype);
}

function questionOf(call: SizedCall, size: number): PlanQuestion {
  const { collective, ranks, root, dtype, row } = call;
  return {
    ...{ collective, ranks, root, count: shapeAt(call, size).count },
    dtype: row.moves ? dtype : undefined,
    op: row.reduces ? "sum" : undefined,
    ...{ ordered: true, place: undefined },
  };
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

/** The sizes from which NCCL takes another algorithm or protocol, found by halving between two rows. */
function switchesOf(
  call: SizedCall,
  calls: LibraryCalls,
  rows: readonly SizeRow[],
): PredictedSizes["switches"] {
  const at = (size: number): ChoiceTime => calls.chosen(questionOf(call, size));
  const element = bytesOf(call.dtype);
  // Bytes of one element, or of one in every rank's block.
  const unit = bytesAt(call, element) || call.ranks * element;
  const found: { bytes: number; from: ChoiceTime; to: ChoiceTime }[] = [];
  for (const [i, { bytes: last, chosen }] of rows.entries()) {
    let [from, first] = [rows[i - 1]?.chosen, rows[i - 1]?.bytes ?? 0];
    // A switch at most for each choice that NCCL has.
    for (let turn = 0; from !== undefined && from.name !== chosen?.name && turn < 8; turn++) {
      let [below, above] = [first, last];
      while (above - below > unit) {
        const middle = below + Math.max(1, Math.floor((above - below) / 2 / unit)) * unit;
        if (at(middle).name === from.name) below = middle;
        else above = middle;
      }
      const bytes = bytesAt(call, above);
      const to = at(above);
      found.push({ bytes, from: at(below), to });
      [from, first] = [to, bytes];
    }
  }
  return found;
}
