/** Predicted times by size: as a document, and as a table. */
import type { Prediction } from "../../algorithms/index.ts";
import { linkText } from "../../algorithms/plans/index.ts";
import { sizeText } from "../../bench/index.ts";
import type { UserRow } from "./compared.ts";
import { type ChoiceTime, type Library, unmeasuredText } from "./library.ts";
import { exactLabel } from "./units.ts";

/** The predictions of one size. */
export interface SizeRow {
  /** Bytes as nccl-tests counts them. */
  readonly bytes: number;
  readonly count: number;
  /** By algorithm; `undefined` if the program is too large. */
  readonly found: readonly (Prediction | undefined)[];
  /** NCCL's choice; `undefined` where no library is followed. */
  readonly chosen: ChoiceTime | undefined;
  /** All choices that NCCL has. */
  readonly every: readonly ChoiceTime[];
}

/** The predictions of a sweep. */
export interface PredictedSizes {
  readonly collective: string;
  readonly library: Library | undefined;
  /** The call, and the links of the catalogue's algorithms. */
  readonly machine: Readonly<Record<string, string | number>>;
  /** True where options name these links. */
  readonly hasOwnLinks: boolean;
  /** Names of the algorithms, in the order of `found`. */
  readonly names: readonly string[];
  /** Notes on the user's algorithms. */
  readonly own: readonly UserRow[];
  readonly rows: readonly SizeRow[];
  /** Sizes from which NCCL takes another choice. */
  readonly switches: readonly {
    readonly bytes: number;
    readonly from: ChoiceTime;
    readonly to: ChoiceTime;
  }[];
  /** Bus bandwidth over algorithm bandwidth. */
  readonly bus: number;
}

/** The first column of times, where a library is followed. */
const libraryColumn = "nccl";

/** Nanoseconds by column: of NCCL where a library is followed, then of the algorithms. */
function timesOf({ library, names }: PredictedSizes, { chosen, found }: SizeRow) {
  const times = names.map((name, at) => {
    const each = found[at];
    return { name, ns: each && each.timePs / 1000 };
  });
  return library === undefined
    ? times
    : [{ name: libraryColumn, ns: chosen?.predictedNs }, ...times];
}

/** Name of the fastest; among equal ones of the first. */
export function fastestOf(table: PredictedSizes, row: SizeRow): string | undefined {
  let best: { name: string; ns: number } | undefined;
  for (const { name, ns } of timesOf(table, row)) {
    if (ns !== undefined && ns < (best?.ns ?? Infinity)) best = { name, ns };
  }
  return best?.name;
}

/** One document: the request, and a result a size with the times of NCCL's choices and of every algorithm. */
export function predictionDocument(table: PredictedSizes): object {
  const { library, machine, own, rows, switches } = table;
  const ownAlgorithms = own.map(({ algorithm, file, soundOn }) => ({ algorithm, file, soundOn }));
  const results = rows.map((row) => ({
    bytes: row.bytes,
    count: row.count,
    fastest: fastestOf(table, row) ?? null,
    ...(row.chosen !== undefined && {
      nccl: choiceDocument(row.chosen),
      choices: row.every.map(choiceDocument),
    }),
    algorithms: algorithmDocuments(table, row),
  }));
  return {
    predicted: true,
    ...machine,
    ...(library !== undefined && {
      nccl: {
        ...{ like: library.options.like, topology: library.topology },
        predictedFor: library.profile === undefined ? null : library.machineText,
        mode: library.profile?.mode ?? null,
        symmetric: library.symmetric,
        settings: library.setup,
        switches: switches.map(({ bytes, from, to }) => ({ bytes, from: from.name, to: to.name })),
      },
    }),
    ...(ownAlgorithms.length > 0 && { own: ownAlgorithms }),
    results,
  };
}

function choiceDocument({ name, channels, predictedNs, extrapolated }: ChoiceTime): object {
  return {
    choice: name,
    channels,
    predictedNs: predictedNs ?? null,
    ...(extrapolated !== undefined && { extrapolated }),
  };
}

function algorithmDocuments({ names, bus }: PredictedSizes, { bytes, found }: SizeRow): object[] {
  return names.map((algorithm, at) => {
    const each = found[at];
    if (each === undefined) return { algorithm, predictedNs: null, reason: "too large" };
    const { timePs, messages, sentElements, engine } = each;
    const busGigabytesPerSecond = timePs === 0 ? null : (bus * bytes * 1000) / timePs;
    return {
      ...{ algorithm, predictedNs: timePs / 1000, busGigabytesPerSecond },
      ...{ messages, sentElements, engine },
    };
  });
}

/** Times in microseconds, a row a size; `*` marks the fastest, `-` a program that is too large. */
export function predictionTable(table: PredictedSizes): string {
  const { library, own, rows } = table;
  const cells = rows.map((row) => {
    const best = fastestOf(table, row);
    const marked = row.chosen?.extrapolated === undefined ? "" : "~";
    const times = timesOf(table, row).map(({ name, ns }) => {
      if (ns === undefined) return "- ";
      const text = timeText(ns / 1000);
      return `${name === libraryColumn ? marked : ""}${text}${name === best ? "*" : " "}`;
    });
    const { chosen } = row;
    const choice = chosen === undefined ? [] : [`${chosen.name} x${chosen.channels} `];
    return [`${sizeCell(row.bytes)} `, ...choice, ...times];
  });
  const columns = timesOf(table, rows[0] as SizeRow).map(({ name }) => `${name} `);
  const head = ["size ", ...(library === undefined ? [] : ["choice "]), ...columns];
  const widths = head.map((title, at) =>
    Math.max(title.length, ...cells.map((row) => (row[at] ?? "").length)),
  );
  const line = (row: readonly string[]): string =>
    row.map((cell, at) => cell.padStart((widths[at] ?? 0) + 2)).join("");
  return [
    ...headLines(table),
    ...own.map(({ text }) => `# ${text}`),
    `#${line(head).slice(1).trimEnd()}   (us, * fastest)`,
    ...cells.map((row) => line(row).trimEnd()),
    ...noteLines(table),
    "",
  ].join("\n");
}

/** The facts of the links. */
const linkFacts = ["topology", "latencyNs", "overheadNs", "gigabytesPerSecond", "credits"] as const;

function headLines(table: PredictedSizes): string[] {
  const { collective, library, machine, rows } = table;
  const facts = (names: readonly string[]): string =>
    names.flatMap((name) => (name in machine ? [`${name} ${machine[name]}`] : [])).join(", ");
  const all = `predicted, not measured: ${facts(Object.keys(machine))}`;
  if (library === undefined) return [`# ${all}`];
  const { latencyNs, gigabytesPerSecond, topology } = machine;
  const reasons = new Set(rows.flatMap(({ chosen }) => chosen?.extrapolated ?? []));
  const call = `${collective}, ${facts(["ranks", "dtype"])}`;
  const link = {
    latencyPs: Number(latencyNs) * 1000,
    gigabytesPerSecond: Number(gigabytesPerSecond),
  };
  const links = `${linkText(link)}, ${topology}`;
  const isMeasured = library.profile !== undefined;
  const onMachine = isMeasured
    ? `each message as a send of that machine, ${links}`
    : `predicted, not measured, for ${links}`;
  const catalogue = table.hasOwnLinks ? `predicted, not measured: ${facts(linkFacts)}` : onMachine;
  if (!isMeasured) {
    return [
      `# ${library.machineText}: ${call}`,
      `# ${libraryColumn} ${unmeasuredText(library)}`,
      `# catalogue: ${catalogue}`,
    ];
  }
  return [
    `# predicted for ${library.machineText}: ${call}`,
    `# ${libraryColumn}: ${library.modeText}`,
    ...[...reasons].map((why) => `# ~ extrapolated: ${why}`),
    `# catalogue: ${catalogue}`,
  ];
}

function noteLines({ rows, switches }: PredictedSizes): string[] {
  const isTooLarge = rows.some(({ found }) => found.includes(undefined));
  return [
    ...switches.map(
      ({ bytes, from, to }) => `# from ${exactLabel(bytes)} on ${to.name} in place of ${from.name}`,
    ),
    ...(isTooLarge
      ? ["# -: a program too large to be timed; take a size that the ranks divide, or fewer ranks"]
      : []),
  ];
}

function sizeCell(bytes: number): string {
  return bytes === 0 ? "0" : sizeText(bytes);
}

function timeText(us: number): string {
  return us >= 1000 ? us.toFixed(0) : us.toPrecision(4);
}
