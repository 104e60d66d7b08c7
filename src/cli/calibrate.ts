/** `twinccl calibrate`: fits the profile of a machine to measured times of NCCL. */
import { basename } from "node:path";
import {
  checkedProfile,
  choiceOf,
  type Residual,
  testedBytes,
  topologies,
} from "../algorithms/index.ts";
import { countText } from "../api/error-text.ts";
import {
  type Calibration,
  calibrate,
  callText,
  nextText,
  startProfile,
} from "../bench/calibration/calibrate.ts";
import { type MeasuredTimes, readResults } from "../bench/calibration/results.ts";
import { sizeText } from "../bench/index.ts";
import { type Command, type Context, UsageError } from "./context.ts";
import { outputFile, readText, refuseSameFile } from "./files.ts";
import { type OptionTable, optionLines, parseOptions } from "./options.ts";

const options = {
  out: { value: "PROFILE", help: "write the profile to this file, as JSON" },
  name: { value: "NAME", help: "name of the machine (PROFILE without .json)" },
  machine: { value: "TEXT", help: "the machine in words (the GPUs of the results)" },
  json: { help: "print one JSON document instead of the tables" },
} as const satisfies OptionTable;

/** The `calibrate` command. */
export const command: Command = {
  help: `Usage: twinccl calibrate RESULTS.json... --out PROFILE [options]

Fits the numbers of the time model to measured times of NCCL, and writes them as the profile of the
machine. RESULTS are documents of \`twinccl bench --calibration --backend nccl\`, and beside them of
\`bench --backend nccl --json\` and \`npm run bench:gpu\`, all of one machine. Prints the error of
every collective, choice and size, and the calls that are worth measuring next. Results that leave
times of measured sizes open are refused with those calls. The plans are those of ${Object.keys(topologies)[0]}.

${optionLines(options)}
Examples:
  twinccl calibrate two.json eight.json --out mine.json
  twinccl calibrate two.json eight.json more.json --out h200.json --name h200 --json

Exit status: 0, or 2 for wrong usage, results with a fault, and too little data.
`,
  run: runCalibrate,
};

async function runCalibrate(args: readonly string[], context: Context): Promise<number> {
  const parsed = parseOptions(args, options, Number.POSITIVE_INFINITY);
  const names = parsed.positionals;
  if (names.length === 0) throw new UsageError("name the files of the results");
  const out = parsed.text("out");
  if (out === undefined) throw new UsageError("--out: name the file of the profile");
  for (const option of ["name", "machine"] as const) {
    if (parsed.text(option) === "") throw new UsageError(`--${option}: found "", needs a text`);
  }
  const results = names.map((path) => ({ what: path, path }));
  for (const [at, path] of names.entries()) refuseSameFile("RESULTS", path, results.slice(0, at));
  refuseSameFile("--out", out, results);
  const write = outputFile("--out", out);
  const times = readResults(
    names.map((name) => ({ name, text: readText(name) })),
    startProfile,
  );
  const { nccl, gpus, commit, date } = times;
  context.progress(`fitting ${times.measurements.length} measured calls`);
  const found = calibrate(times, {
    name: parsed.text("name") ?? basename(out, ".json"),
    machine: parsed.text("machine") ?? `${gpus.length} x ${gpus[0]}`,
    ...{ topology: startProfile.topology, nccl, date, commit: commit.slice(0, 7) },
    sources: names.map((name) => basename(name)),
  });
  const { profile, residuals, next } = found;
  checkedProfile(profile, out);
  const document = { profile, residuals: residuals.map(residualRow), next: next.map(nextRow) };
  context.out(parsed.has("json") ? `${JSON.stringify(document, null, 2)}\n` : tables(found, times));
  write?.(`${JSON.stringify(profile, null, 2)}\n`);
  return 0;
}

function errorOf({ measurement, modelUs }: Residual): number {
  return modelUs / measurement.us - 1;
}

function residualRow(residual: Residual): object {
  const { measurement, modelUs } = residual;
  const { collective, ranks, count, dtype, mode, us, source } = measurement;
  const choice = choiceOf(startProfile, measurement)?.name;
  const call = { collective, ranks, size: testedBytes(measurement), count, type: dtype };
  return { ...call, mode, choice, time: us, predicted: modelUs, source };
}

function nextRow({ question, uncertainty }: Calibration["next"][number]): object {
  const { collective, ranks, count, dtype, mode } = question;
  const size = testedBytes(question);
  return { collective, ranks, size, count, type: dtype, mode, uncertainty };
}

/** Errors in words: mean and worst. */
function errorCells(residuals: readonly Residual[]): [string, string] {
  const errors = residuals.map((each) => Math.abs(100 * errorOf(each)));
  const mean = errors.reduce((sum, each) => sum + each, 0) / errors.length;
  return [mean.toFixed(1), Math.max(...errors).toFixed(1)];
}

function tables(found: Calibration, times: MeasuredTimes): string {
  const { profile, residuals, next } = found;
  const groups = new Map<string, Residual[]>();
  for (const residual of residuals) {
    const { measurement } = residual;
    const choice = choiceOf(startProfile, measurement)?.name ?? "";
    const key = [callText(measurement), choice, sizeText(testedBytes(measurement))].join("\t");
    groups.set(key, [...(groups.get(key) ?? []), residual]);
  }
  const cells = [...groups].map(([key, group]) => {
    return [...key.split("\t"), String(group.length), ...errorCells(group)];
  });
  const head = ["collective", "choice", "size", "calls", "error", "worst"];
  const widths = head.map((title, at) =>
    Math.max(title.length, ...cells.map((row) => row[at]?.length ?? 0)),
  );
  const line = (row: readonly string[]): string =>
    row
      .map((cell, at) => (at < 2 ? cell.padEnd(widths[at] ?? 0) : cell.padStart(widths[at] ?? 0)))
      .join("  ");
  const [mean, worst] = errorCells(residuals);
  const skipped = [...times.skipped].map(([name, rows]) => `${name} (${countText(rows, "row")})`);
  return [
    `# ${profile.name}: ${profile.machine}, NCCL ${profile.nccl}; ${residuals.length} measured calls`,
    `# ${line(head)}   (|predicted / measured - 1| in %: mean and worst)`,
    ...cells.map((row) => `  ${line(row)}`),
    `# all: ${mean} % off (mean), ${worst} % (worst)`,
    ...(skipped.length === 0 ? [] : [`# no time model from these results: ${skipped.join(", ")}`]),
    `# measured, beyond it predictions are extrapolated: ${measuredText(profile.measured)}`,
    ...(next.length === 0
      ? ["# nothing of the calibration is left open"]
      : ["# worth measuring next:", ...next.map((each) => `#   ${nextText(each)}`)]),
    "",
  ].join("\n");
}

function measuredText(measured: Calibration["profile"]["measured"]): string {
  const range = (
    [least, most]: readonly [number, number],
    text: (value: number) => string,
  ): string => (least === most ? text(least) : `${text(least)} to ${text(most)}`);
  return Object.entries(measured)
    .flatMap(([collective, { modes }]) =>
      Object.entries(modes).map(([mode, { ranks, bytes }]) => {
        const ranges = `${range(ranks, String)} ranks, ${range(bytes, sizeText)}`;
        return `\n#   ${collective}, ${mode}: ${ranges}`;
      }),
    )
    .join("");
}
