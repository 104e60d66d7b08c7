// Compares predicted times with every measured one in bench/results, and writes the errors into docs/design/nccl-times.md.
// npm run predict:check -- --help
import { readFileSync, writeFileSync } from "node:fs";
import { basename, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { fitProfile, machineProfiles, residualsOf, testedBytes } from "twinccl/algorithms";
import { options, plain } from "./options.mjs";
import { ablationTable } from "./times/ablation.mjs";
import {
  afterCalibration,
  afterCalibrationFile,
  calibrated,
  calibrationFiles,
  fittedMeasurements,
  fittedOddFiles,
  oddSizes,
  oddSizesFiles,
  otherFiles,
  otherMeasurements,
  profileOrigin,
  repeatedMeasurements,
  unfittedMeasurements,
} from "./times/measurements.mjs";
import { messageResiduals, messagesFiles } from "./times/messages.mjs";
import { errorText, markdownTable } from "./times/report.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const values = options({
  name: "predict:check",
  about:
    "Compares predicted times with those measured in bench/results, and writes the errors into a page.",
  options: {
    check: { help: "write nothing; status 1 if the page differs" },
    numbers: {
      help: "print what each number of the model buys, for docs/design/nccl-times.md; write nothing",
    },
    page: {
      is: plain("FILE"),
      default: "docs/design/nccl-times.md",
      help: "the page; relative to the repository",
    },
  },
});

const { check, numbers } = values;
const page = resolve(root, values.page);

const begin = "<!-- predicted times -->\n";
const end = "<!-- end of predicted times -->\n";

const profile = machineProfiles.h200x8;
const origin = profileOrigin();
const ranks = [2, 4, 8];

const [kibi, mebi] = [2 ** 10, 2 ** 20];
/** Classes of all sizes, with the powers of two at their ends as names: the tables hold no other sizes. */
const sizeClasses = [
  { name: "to 8 KiB", holds: (bytes) => bytes <= 8 * kibi },
  { name: "16 to 512 KiB", holds: (bytes) => bytes > 8 * kibi && bytes < mebi },
  { name: "1 to 16 MiB", holds: (bytes) => bytes >= mebi && bytes <= 16 * mebi },
  { name: "from 32 MiB", holds: (bytes) => bytes > 16 * mebi },
];

const fitted = fittedMeasurements();

const isDevice = ({ mode }) =>
  mode.launch === "graph" && mode.processes === "each" && !mode.awaited;

if (numbers) {
  const table = ablationTable(origin, fitted, profile, ({ measurement }) => isDevice(measurement));
  process.stdout.write(table);
  process.exit(0);
}

/** The numbers as powers of two: a fit that starts from them cannot keep what it should find. */
const coarse = (value) =>
  typeof value === "number"
    ? 2 ** Math.round(Math.log2(value))
    : Object.fromEntries(Object.entries(value).map(([name, each]) => [name, coarse(each)]));

/** Residuals of these measurements by a fit to all others. */
function leftOut(isOut) {
  const kept = fitted.filter((each) => !isOut(each));
  const start = { ...profile, numbers: coarse(profile.numbers) };
  const { profile: without } = fitProfile(origin, kept, start);
  return atPowers(residualsOf(without, fitted.filter(isOut)));
}

/** The measurements at sizes that are powers of two, which the tables of collectives and ways of calling hold. */
const atPowers = (residuals) =>
  residuals.filter(({ measurement }) => !fittedOddFiles.includes(measurement.source));

const allInFit = residualsOf(profile, fitted);
const inFit = atPowers(allInFit);
const bySize = sizeClasses.flatMap(({ holds }) => leftOut((each) => holds(testedBytes(each))));
/** Every fourth size, so that both neighbours of a size that is left out were fitted. */
const fourths = [0, 1, 2, 3];
const fourthOf = (each) => (Math.round(Math.log2(testedBytes(each))) >> 1) % fourths.length;
const between = fourths.flatMap((part) => {
  return leftOut((each) => isDevice(each) && fourthOf(each) === part);
});
const byRanks = leftOut((each) => each.ranks === 4);
const ownCalls = residualsOf(profile, unfittedMeasurements());
/** Of other comparisons: the calls of a loop in C++, and those of twinccl. */
const elsewhere = Object.entries(otherFiles).flatMap(([gpus, file]) =>
  [
    ["C++", "native"],
    ["twinccl", "twinccl"],
  ].map(([program, peer]) => ({
    title: `${gpus}, ${program}`,
    residuals: residualsOf(profile, otherMeasurements(file, peer)),
    repeats: repeatedMeasurements(file, peer),
  })),
);

const calibration = calibrated();
const twice = afterCalibration();
/** An interruption of the host adds to a time, so that the lesser one of two runs counts. */
const lesser = twice.map(({ first, second }) => (first.us < second.us ? first : second));
const afterwards = [
  ["fitted", calibration.residuals],
  ["other sizes", residualsOf(calibration.profile, lesser)],
  [`other sizes, by ${profile.name}`, residualsOf(profile, lesser)],
  [
    "other sizes, second run by first",
    twice.map(({ first, second }) => ({ measurement: second, modelUs: first.us })),
  ],
];

const atOddSizes = [
  ["H200, fitted", allInFit.filter((each) => !inFit.includes(each))],
  ...Object.entries(oddSizesFiles).map(([gpu, file]) => [
    gpu,
    residualsOf(profile, oddSizes(file)),
  ]),
];

const messages = await Promise.all(
  Object.entries(messagesFiles).map(async ([gpu, file]) => [gpu, await messageResiduals(file)]),
);

/** Rows of the tables: the measurements that each holds. */
const isOrdinary = (each) => isDevice(each) && each.mode.memory !== "symmetric";
const isDefault = (each) => isOrdinary(each) && each.forced === undefined;
const collective = (name) => (each) => isDefault(each) && each.collective === name;
const forced = (algorithm, protocol) => (each) =>
  each.forced?.algorithm === algorithm && each.forced.protocol === protocol;
const symmetric = (name) => (each) =>
  isDevice(each) && each.mode.memory === "symmetric" && each.collective === name;
const mode = (launch, processes, isSymmetric) => (each) =>
  !each.mode.awaited &&
  each.mode.launch === launch &&
  each.mode.processes === processes &&
  (each.mode.memory === "symmetric") === isSymmetric;

const deviceRows = [
  ["all-reduce", collective("allReduce")],
  ["reduce-scatter", collective("reduceScatter")],
  ["all-gather", collective("allGather")],
  ["broadcast", collective("broadcast")],
  ["all-to-all", collective("allToAll")],
  ["all-to-allv", collective("allToAllv")],
  ...["Ring", "Tree"].flatMap((algorithm) =>
    ["LL", "LL128", "Simple"].map((protocol) => [
      `all-reduce forced to ${algorithm} ${protocol}`,
      forced(algorithm, protocol),
    ]),
  ),
  ["symmetric all-reduce", symmetric("allReduce")],
  ["symmetric reduce-scatter", symmetric("reduceScatter")],
  ["symmetric all-gather", symmetric("allGather")],
  ["all of these", isDevice],
];

const modeRows = [
  ["recorded", mode("graph", "each", false)],
  ["recorded, symmetric", mode("graph", "each", true)],
  ["call by call", mode("eager", "each", false)],
  ["call by call, symmetric", mode("eager", "each", true)],
  ["one process, recorded", mode("graph", "one", false)],
  ["one process, recorded, symmetric", mode("graph", "one", true)],
  ["one process, call by call", mode("eager", "one", false)],
  ["one process, call by call, symmetric", mode("eager", "one", true)],
  ...["each", "one"].flatMap((processes) =>
    ["native", undefined].map((program) => [
      `awaited, 1 KiB${processes === "one" ? ", one process" : ""}${program ? "" : ", twinccl"}`,
      ({ mode }) => mode.awaited && mode.processes === processes && mode.program === program,
    ]),
  ),
];

/** The ways of calling again, with awaited calls of all sizes. */
const calibratedRows = [
  ...modeRows.filter(([name]) => !name.startsWith("awaited")),
  ...["graph", "eager"].flatMap((launch) =>
    ["each", "one"].map((processes) => [
      `awaited, ${launch === "graph" ? "recorded" : "call by call"}${processes === "one" ? ", one process" : ""}`,
      ({ mode }) => mode.awaited && mode.launch === launch && mode.processes === processes,
    ]),
  ),
];

const of = (residuals, holds) => residuals.filter(({ measurement }) => holds(measurement));
const onRanks = (residuals, holds) =>
  ranks.map((size) => errorText(of(residuals, (each) => each.ranks === size && holds(each))));

function deviceTable() {
  const each = (text) => ranks.map((size) => `${size}, ${text}`);
  const head = ["recorded, by GPUs", "2", "4", "8", ...each("between"), ...each("size left out")];
  return markdownTable(
    [...head, "4, from others"],
    deviceRows.map(([name, holds]) => [
      name,
      ...onRanks(inFit, holds),
      ...onRanks(between, holds),
      ...onRanks(bySize, holds),
      errorText(of(byRanks, holds)),
    ]),
  );
}

function modeTable() {
  const head = [
    "by way of calling",
    "2",
    "4",
    "8",
    "2, by twinccl",
    "4, by twinccl",
    "8, by twinccl",
  ];
  return markdownTable(
    head,
    modeRows.map(([name, holds]) => [name, ...onRanks(inFit, holds), ...onRanks(ownCalls, holds)]),
  );
}

/** Rows of the collectives by NCCL's choice. */
const chosenRows = deviceRows.filter(([name]) => !name.startsWith("all-reduce forced"));

function otherTable() {
  return markdownTable(
    ["other measurements, of no fit", ...elsewhere.map(({ title }) => title)],
    [...chosenRows, ...modeRows]
      .map(([name, holds]) => [
        name,
        ...elsewhere.map(({ residuals }) => errorText(of(residuals, holds))),
      ])
      .filter(([, ...cells]) => cells.some((cell) => cell !== "")),
  );
}

/** Differences between the times of two machines: the least error that a profile of one of them can have on the other. */
function repeatTable() {
  return markdownTable(
    ["measured twice", ...elsewhere.map(({ title }) => title)],
    modeRows
      .map(([name, holds]) => [
        name,
        ...elsewhere.map(({ repeats }) => errorText(of(repeats, holds))),
      ])
      .filter(([, ...cells]) => cells.some((cell) => cell !== "")),
  );
}

/** A machine after its own calibration. */
function calibratedTable() {
  return markdownTable(
    ["after `calibrate`", ...afterwards.map(([title]) => title)],
    calibratedRows
      .map(([name, holds]) => [
        name,
        ...afterwards.map(([, residuals]) => errorText(of(residuals, holds))),
      ])
      .filter(([, ...cells]) => cells.some((cell) => cell !== "")),
  );
}

function oddTable() {
  const columns = atOddSizes
    .flatMap(([gpu, residuals]) => [2, 3, 4].map((size) => ({ gpu, residuals, size })))
    .filter(({ residuals, size }) =>
      residuals.some(({ measurement }) => measurement.ranks === size),
    );
  const rows = [
    ...deviceRows.slice(0, -1),
    ["reduce", collective("reduce")],
    ["all of these", isDevice],
  ];
  return markdownTable(
    ["odd sizes", ...columns.map(({ size, gpu }) => `${size} x ${gpu}`)],
    rows
      .map(([name, holds]) => [
        name,
        ...columns.map(({ residuals, size }) =>
          errorText(of(residuals, (each) => each.ranks === size && holds(each))),
        ),
      ])
      .filter(([, ...cells]) => cells.some((cell) => cell !== "")),
  );
}

function messageTable([gpu, residuals]) {
  const names = [...new Set(residuals.map(({ measurement }) => measurement.name))];
  const isSmall = ({ bytes }) => bytes < mebi;
  const counts = [2, 3, 4];
  const cell = (name, size, isOf) =>
    errorText(of(residuals, (each) => each.name === name && each.ranks === size && isOf(each)));
  return markdownTable(
    [
      "messages, of no fit",
      ...counts.map((size) => `${size} x ${gpu}, to 768 KiB`),
      ...counts.map((size) => `${size} x ${gpu}, from 1 MiB`),
    ],
    names.map((name) => [
      name,
      ...counts.map((size) => cell(name, size, isSmall)),
      ...counts.map((size) => cell(name, size, (each) => !isSmall(each))),
    ]),
  );
}

function sizeTable() {
  return markdownTable(
    [
      "recorded, by size",
      ...sizeClasses.map(({ name }) => name),
      ...sizeClasses.map(({ name }) => `${name}, left out`),
    ],
    chosenRows.map(([name, holds]) => [
      name,
      ...[inFit, bySize].flatMap((residuals) =>
        sizeClasses.map(({ holds: inClass }) =>
          errorText(of(residuals, (each) => inClass(testedBytes(each)) && holds(each))),
        ),
      ),
    ]),
  );
}

const filesText = (files) =>
  Object.values(files)
    .map((name) => `\`${name}\``)
    .join(", ");

function section() {
  return `${begin}## Predicted times

The profile \`${profile.name}\` (${profile.machine}, NCCL ${profile.nccl}, ${profile.date}) beside every measured time of NCCL in \`bench/results\`. A cell is the error
|predicted / measured − 1| in per cent: geometric mean / worst (number of calls). Two measurements of one call on two machines differ by 3 % on
average, and at 1 to 4 MiB by up to 20 %. \`npm run predict:check\` writes these tables.

### Recorded calls

The profile is fitted to ${profile.sources.map((name) => `\`${name}\``).join(", ")}.

| columns | predicted by |
|---|---|
| 2, 4, 8 | the profile |
| between | a fit without these sizes: every fourth one is left out in turn |
| size left out | a fit without these sizes: those of a column of [the last table](#by-size) are left out together |
| from others | a fit without the times of 4 GPUs |

A fit without some times starts from powers of two, and not from the numbers of the profile, in which those times are contained.

${deviceTable()}
### Ways of calling

The last three columns hold calls of twinccl, of no fit. Its awaited calls on 2 GPUs are in the fit (column 2), as \`programUs\` comes from them: only there had V8
compiled twinccl's code before they were measured.

${modeTable()}
### Other machines

Nothing of these comparisons is fitted. They are of four H100 and of other H200 at a later time: ${filesText(otherFiles)}.

${otherTable()}
In the next table the times of the first machines for the same calls take the place of predictions. No profile of one machine can have
smaller errors on another. Recorded calls repeat. Calls one by one, and calls of one process, depend on the host's processor: the hosts differ by as
much as the predictions.

${repeatTable()}
### After a calibration

Two other H200 after a calibration of their own. *Fitted* are the calls of the calibration (${calibrationFiles.map((name) => `\`${name}\``).join(", ")}). *Other sizes* are
calls of 40 B to 191 MB right after it, each measured in two runs (\`${afterCalibrationFile}\`), of which the lesser time counts. The last column is the
difference of the two runs: one machine does not repeat its calls one by one within minutes.

${calibratedTable()}
### Odd sizes

Recorded calls of 48 B to 413 MB, half of them with misaligned blocks. Those of ${fittedOddFiles.map((name) => `\`${name}\``).join(" and ")} are in
the fit, the others of no fit (${filesText(oddSizesFiles)}). The fourth H200 have sizes about those
of a GPU's cache, and 16-bit types.

${oddTable()}
### Recorded messages

Messages of 1 KiB to 256 MiB (${filesText(messagesFiles)}), predicted by the simulation's virtual time of the same programs. The
factors 1.7 and 2.2 for channels of one direction come from them, and no number of the profile.

${messages.map(messageTable).join("\n")}
### By size

${sizeTable()}
${end}`;
}

const before = readFileSync(page, "utf8");
const [start, stop] = [before.indexOf(begin), before.indexOf(end)];
if (start < 0 || stop < 0) {
  process.stderr.write(`${basename(page)} has no markers for predicted times\n`);
  process.exit(1);
}
const after = before.slice(0, start) + section() + before.slice(stop + end.length);
if (check && after !== before) {
  process.stderr.write(`${basename(page)}: its predicted times differ from bench/results\n`);
  process.exit(1);
}
if (!check) writeFileSync(page, after);
