/** `twinccl invariant`: decides what the bits of a call depend on beside its contributions. Runs nothing. */
import {
  type Answer,
  type CallTime,
  type DifferentFold,
  dependences,
  type FoldRange,
  foldText,
  type Invariance,
  type InvarianceQuestion,
  invariance,
  libraryOf,
  type NcclCollective,
  type PricedSettings,
  type Witness,
} from "../algorithms/index.ts";
import { isNcclCollective, machineOf, ncclCollectives } from "../algorithms/nccl/index.ts";
import { alignedTable, countText } from "../api/error-text.ts";
import { namedReduceOps, type ReduceOp } from "../api/index.ts";
import type { MeasuredCollective } from "../bench/index.ts";
import { parseSize } from "../bench/index.ts";
import { opHelp, parseCollective, parseDtype, refuseUnused, rootOf } from "./args.ts";
import { type Command, type Context, UsageError } from "./context.ts";
import { show, showAsRank } from "./invariant/show.ts";
import {
  type Asked,
  shownOn,
  shownQuestion,
  shownText,
  showOptions,
} from "./invariant/show-options.ts";
import { hasLauncherChannel } from "./launch/job.ts";
import { machineHelp, machineNamed } from "./machines.ts";
import { libraryNameOf, ncclVariables } from "./nccl-settings.ts";
import {
  type OptionTable,
  oneOf,
  optionLines,
  type Parsed,
  parseOptions,
  wholeNumbers,
  wordsOf,
} from "./options.ts";
import { processesStatus } from "./placement.ts";

const options = {
  ranks: { short: "n", value: "N,…", help: "number of ranks, or several padded to each other (8)" },
  count: { value: "A..B", help: "numbers of elements, such as 5120..10M (1..1M)" },
  row: { value: "N", help: "only counts of whole rows of N elements, and places rows apart (1)" },
  dtype: { short: "d", value: "TYPE", help: "element type (float32)" },
  op: { short: "o", value: "OP", help: opHelp },
  root: { short: "r", value: "RANK", help: "root of a reduce (0)" },
  nccl: { value: "SETTINGS", help: "NCCL's environment variables, with commas between" },
  like: { value: "LIBRARY,…", help: "versions: nccl-2.27 to 2.30, torch-2.10 to 2.14 (nccl-2.28)" },
  topology: { value: "MACHINE,…", help: "machines (h200x8)" },
  ask: { value: "NAMES", help: `some of ${dependences.join(", ")}` },
  ...showOptions,
  json: { help: "print one JSON document" },
} as const satisfies OptionTable;

type InvariantOptions = Parsed<typeof options>;

/** The `invariant` command. */
export const command: Command = {
  help: `Usage: twinccl invariant COLLECTIVE [options]

Decides whether the bits of an element depend on anything but its contributions, for every count
of a range, by proof over the breakpoints of NCCL's plans. What depends is shown by the smallest
count, both folds, and contributions with different bits. Runs nothing without --backend, which
makes the calls of the answers: docs/invariance.md.
COLLECTIVE: ${ncclCollectives.join(" ")}

${optionLines(options)}
SETTINGS as NCCL parses them: NCCL_ALGO and NCCL_PROTO name collectives before a colon, have
semicolons between and exclude after ^. Also NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS (or …_CTAS),
NCCL_NTHREADS, NCCL_LL128_NTHREADS, NCCL_BUFFSIZE, NCCL_LL_BUFFSIZE, NCCL_LL128_BUFFSIZE.
${machineHelp}
Examples:
  twinccl invariant all-reduce -d bfloat16 --count 5120..10M --nccl NCCL_ALGO=allreduce:tree
  twinccl invariant all-reduce --ranks 4,8 --ask ranks --nccl NCCL_ALGO=allreduce:tree
  twinccl invariant reduce-scatter --count 5120..1M --row 5120
  twinccl invariant all-reduce --topology h200-hosts --ask size --backend nccl --launch

Exit status: 0 whatever the answers are, 1 where calls on a backend are not as predicted, or 2 for
wrong usage.
${processesStatus}
`,
  run: runInvariant,
};

async function runInvariant(args: readonly string[], context: Context): Promise<number> {
  const parsed = parseOptions(args, options, 1);
  const row = parseCollective(parsed.positionals[0], ncclCollectives);
  const { collective } = row;
  if (!isNcclCollective(collective)) {
    const known = ncclCollectives.join(", ");
    throw new UsageError(`NCCL's plan is known of ${known}, not of ${collective}`);
  }
  refuseUnused(row, parsed, ["root", "op"]);
  const asked = askedOf(collective, row, parsed);
  const { question } = asked;
  const on = shownOn(asked, parsed);
  if (on !== undefined && hasLauncherChannel()) {
    await showAsRank(on, await context.backends());
    return 0;
  }
  // Wrong options are refused before anything is printed.
  const calls = shownQuestion(asked, parsed);
  const found = invariance(question);
  if (!parsed.has("json")) context.out(plainText(question, found));
  const shown = on && (await show(calls, found, on, args, context));
  if (typeof shown === "number") return shown;
  if (parsed.has("json")) {
    const { ranks, dtype, op, root, variables } = question;
    const document = { collective, ranks, dtype, op, root, variables, ...found, shown };
    context.out(`${JSON.stringify(document, null, 2)}\n`);
  } else if (shown !== undefined) context.out(shownText(shown));
  return shown === undefined || shown.isAsPredicted ? 0 : 1;
}

function askedOf(
  collective: NcclCollective,
  row: MeasuredCollective,
  parsed: InvariantOptions,
): Asked {
  const ranks = wholeNumbers("--ranks", wordsOf("--ranks", parsed.text("ranks") ?? "8"), "commas");
  const namesOf = (option: "like" | "topology" | "ask"): string[] | undefined => {
    const text = parsed.text(option);
    return text === undefined ? undefined : wordsOf(`--${option}`, text);
  };
  const libraries = (namesOf("like") ?? ["nccl-2.28"]).map((name) => libraryNameOf("--like", name));
  const machines = (namesOf("topology") ?? ["h200x8"]).map((name) =>
    machineNamed("--topology", name),
  );
  const ask = namesOf("ask")?.map((name) => oneOf("--ask", name, dependences));
  const root = rootOf(row, parsed.integer("root", 0), Math.min(...ranks));
  const op = row.reduces ? oneOf("--op", parsed.text("op") ?? "sum", namedReduceOps) : undefined;
  const question = {
    collective,
    ranks,
    dtype: parseDtype(parsed.text("dtype") ?? "float32"),
    op,
    root: row.rooted ? root : undefined,
    counts: countsOf(parsed.text("count") ?? "1..1M"),
    row: parsed.count("row", 1),
    variables: ncclVariables("--nccl", parsed.text("nccl")),
    version: libraries.map((name) => libraryOf(name)?.version ?? name),
    topology: machines.map((machine) => machineOf(machine)),
    ask,
  };
  return { question, machines, libraries };
}

function countsOf(text: string): { readonly from: number; readonly to: number } {
  const ends = text.split("..");
  const sizes = ends.map((end) => (/^\d+[KMG]?$/i.test(end) ? parseSize(end) : undefined));
  const [from, to] = [sizes[0], sizes.at(-1)];
  if (from !== undefined && to !== undefined && ends.length <= 2) return { from, to };
  throw new UsageError(
    `--count: found "${text}", needs a range such as 5120..10M, of counts below 2^53`,
  );
}

function plainText(question: InvarianceQuestion, found: Invariance): string {
  const { collective, dtype, op, row = 1, variables = {} } = question;
  const { from, to } = found.counts;
  const operator = op === undefined ? "" : ` ${op}`;
  const rows = row === 1 ? "" : ` in rows of ${row}`;
  const names = found.answers.map(({ question: name }) => name.length);
  return [
    `${collective} ${dtype}${operator} of ${rangeText(from, to)} ${to === 1 ? "element" : "elements"}${rows}, as NCCL ${found.version} on ${found.topology}`,
    `settings: ${settingsText(variables) || "none"}`,
    "",
    ...found.answers.flatMap((answer) => answerLines(answer, Math.max(...names), op)),
    "",
    "folds",
    ...indented(foldRows(found.ranges, op)),
    "provided that",
    ...found.provided.map((each) => `  ${each}`),
    ...cheapestLines(found, question),
    "",
  ].join("\n");
}

function settingsText(variables: Readonly<Record<string, string>>): string {
  return Object.entries(variables)
    .map(([name, value]) => `${name}=${value}`)
    .join(" ");
}

function rangeText(from: number, to: number): string {
  return from === to ? `${from}` : `${from}..${to}`;
}

function indented(rows: readonly (readonly string[])[]): string[] {
  return alignedTable(rows).map((line) => `  ${line}`);
}

function answerLines(
  { question, isInvariant, reason, folds, witness }: Answer,
  width: number,
  op: ReduceOp | undefined,
): string[] {
  const verdict = isInvariant ? "invariant" : "depends  ";
  const line = `${question.padEnd(width)}  ${verdict}  ${reason}`;
  if (folds === undefined) return [line];
  return [line, ...indented(folds.map((fold) => foldRow(fold, op))), ...witnessLines(witness, op)];
}

function foldRow(fold: DifferentFold, op: ReduceOp | undefined): string[] {
  const { call, count, block, element, algorithm, protocol, channel, channels } = fold;
  const of = block === 0 ? "" : ` of rank ${block}`;
  const rounded = fold.rounding === "none" ? "" : `, products ${roundingWords[fold.rounding]}`;
  return [
    `  ${call}`,
    `element ${element}${of} of ${count}`,
    protocol === undefined
      ? algorithm
      : `${algorithm} ${protocol}, channel ${channel} of ${channels}`,
    `${foldText(fold.order, op)}${rounded}`,
  ];
}

const roundingWords = { fused: "fused", separate: "rounded separately" } as const;

function witnessLines(witness: Witness | undefined, op: ReduceOp | undefined): string[] {
  if (witness === undefined) return [];
  const { contributions, results } = witness;
  const neutral = op === "prod" ? 1 : 0;
  const all = contributions.map((value, rank) => ({ value, text: `r${rank} = ${value}` }));
  const shown = all.filter(({ value }) => value !== neutral).map(({ text }) => text);
  const rest = shown.length < all.length ? [`all others ${neutral}`] : [];
  return [`    with ${[...shown, ...rest].join(", ")}: ${results[0]} and ${results[1]}`];
}

/** Neighbouring ranges with one fold share a row: a choice flickers where times are equal. */
function foldRows(ranges: readonly FoldRange[], op: ReduceOp | undefined): string[][] {
  const groups: FoldRange[][] = [];
  const folds = (range: FoldRange): string =>
    JSON.stringify([range.ranks, range.folds ?? range.algorithm]);
  for (const range of ranges) {
    const group = groups.at(-1);
    if (group !== undefined && folds(group[0] as FoldRange) === folds(range)) group.push(range);
    else groups.push([range]);
  }
  return groups.map((group) => {
    const [first, last] = [group[0], group.at(-1)] as [FoldRange, FoldRange];
    const plans = group.map(({ algorithm, protocol = "" }) => `${algorithm} ${protocol}`.trim());
    const channels = Math.max(...group.map((range) => range.channels));
    return [
      countText(first.ranks, "rank"),
      rangeText(first.from, last.to),
      [...new Set(plans)].join(", "),
      channels === 1 ? "1 channel" : `up to ${channels} channels`,
      foldsText(first.folds, op),
    ];
  });
}

function foldsText(folds: FoldRange["folds"], op: ReduceOp | undefined): string {
  if (folds === undefined) return "elements differ";
  const [first = []] = folds;
  const more = folds.length === 1 ? "" : `, and so on for each rank's block`;
  return op === undefined ? "copied" : `${foldText(first, op)}${more}`;
}

function cheapestLines(
  { cheapest, topology, version }: Invariance,
  { op, variables = {} }: InvarianceQuestion,
): string[] {
  if (op === undefined) return [];
  if (cheapest.length === 0) {
    return ["no setting of algorithm, protocol and channels makes size and position invariant"];
  }
  const machine = `${topology} under NCCL ${version}`;
  const lines = (cheapest[0] as PricedSettings).times.flatMap((first, at) => {
    const { ranks, counts, predictedFor, freeTimes, askedTimes } = first;
    const rows = cheapest.map(({ variables, times }) => [
      settingsText(variables) || "no setting",
      ...timeTexts(times[at]?.times ?? []),
    ]);
    if (predictedFor === undefined)
      return [...indented(rows), `  not predicted: no times of ${machine} were measured`];
    const asked = Object.keys(variables).length === 0 ? [] : askedTimes;
    const all = [
      ...cheapest.flatMap(({ times }) => times[at]?.times ?? []),
      ...asked,
      ...freeTimes,
    ];
    const reasons = new Set(all.flatMap(({ extrapolated: why }) => why ?? []));
    const head = [`${ranks} ranks, µs`, ...counts.map(String)];
    return [
      ...indented([
        head,
        ...rows,
        ...(asked.length > 0 ? [["as asked", ...timeTexts(asked)]] : []),
        ["NCCL's own choice", ...timeTexts(freeTimes)],
      ]),
      `  predicted for ${predictedFor}`,
      ...[...reasons].map((why) => `  ~ extrapolated: ${why}`),
    ];
  });
  return ["fewest settings with size and position invariant", ...lines];
}

/** Microseconds, with a mark where they are extrapolated. */
function timeTexts(times: readonly CallTime[]): string[] {
  return times.map(
    ({ us, extrapolated }) => `${us.toFixed(1)}${extrapolated === undefined ? "" : " ~"}`,
  );
}
