// A result of `npm run bench:gpu -- --out FILE` as a section of docs/benchmarks.md.

import { ratioOf } from "../gpu/ratio.mjs";

export const sizeText = (bytes) => {
  for (const [unit, size] of [
    ["MiB", 2 ** 20],
    ["KiB", 2 ** 10],
  ]) {
    if (bytes >= size) return `${Math.round(bytes / size)} ${unit}`;
  }
  return `${bytes} B`;
};

const timeText = (us) => (us === undefined ? "" : us.toFixed(us >= 100 ? 0 : 1));
const medianOf = (row, peer) => row?.peers[peer]?.median_us;
export const table = (head, rows) =>
  [head, head.map(() => "--:"), ...rows].map((cells) => `| ${cells.join(" | ")} |\n`).join("");

/** Columns: how an all-reduce is issued, and by which program. */
const allReduceColumns = [
  ["eager", "twinccl"],
  ["eager", "native"],
  ["eager", "koffi"],
  ["eager", "torch"],
  ["graph", "twinccl"],
  ["graph", "native"],
  ["symmetric+graph", "twinccl"],
  ["symmetric+graph", "native"],
  ["eager", "twinccl, one process"],
  ["eager", "native, one process"],
];

function ratioText(row) {
  return ratioOf(row, "twinccl", "native")?.toFixed(2) ?? "";
}

function allReduceTable(rows) {
  const ours = rows.filter(({ collective }) => collective === "allReduce");
  const eager = ours.filter(({ mode }) => mode === "eager");
  const find = (mode, bytes) => ours.find((row) => row.mode === mode && row.bytes === bytes);
  const shown = allReduceColumns.filter(([mode, peer]) =>
    eager.some(({ bytes }) => medianOf(find(mode, bytes), peer) !== undefined),
  );
  const head = shown.map(([mode, peer]) => (mode === "eager" ? peer : `${peer}, ${mode}`));
  const lines = eager.map((row) => [
    sizeText(row.bytes),
    ...shown.map(([mode, peer]) => timeText(medianOf(find(mode, row.bytes), peer))),
    ratioText(row),
  ]);
  return table(["all-reduce", ...head, "twinccl / native"], lines);
}

/** The other collectives: a small, a middle and a large size of each. */
function othersTable(rows) {
  const lines = [];
  const peers = ["twinccl", "native", "torch"];
  for (const collective of new Set(rows.map((row) => row.collective))) {
    if (collective === "allReduce") continue;
    const own = rows.filter((row) => row.collective === collective && row.mode === "eager");
    const near = (bytes) =>
      own.toSorted(
        (a, b) => Math.abs(Math.log(a.bytes / bytes)) - Math.abs(Math.log(b.bytes / bytes)),
      )[0];
    for (const row of new Set([near(2 ** 11), near(2 ** 19), near(2 ** 27)])) {
      if (row === undefined || medianOf(row, "twinccl") === undefined) continue;
      const times = peers.map((peer) => timeText(medianOf(row, peer)));
      lines.push([collective, sizeText(row.bytes), ...times, ratioText(row)]);
    }
  }
  return table(["", "size", ...peers, "twinccl / native"], lines);
}

/** Programs that are compared with C++, each with its peer. */
const besideNative = [
  ["one process for each GPU", "twinccl", "native"],
  ["one process drives all", "twinccl, one process", "native, one process"],
];

/** The rows between which C++ and JavaScript differ in kind: whether the processor or the GPU is waited for. */
const classes = [
  ["below 1 MiB, call by call", (row) => row.bytes < 2 ** 20 && !row.mode.includes("graph")],
  ["below 1 MiB, in graphs", (row) => row.bytes < 2 ** 20 && row.mode.includes("graph")],
  ["from 1 MiB", (row) => row.bytes >= 2 ** 20],
];

/** The median and the largest of ratios, and their number. */
function spread(ratios) {
  const sorted = ratios.toSorted((a, b) => a - b);
  const median = sorted[Math.floor((sorted.length - 1) / 2)];
  return { median, largest: sorted.at(-1), count: sorted.length };
}

/** All collectives, modes and sizes beside C++: the median and the largest ratio. */
function ratiosTable(rows) {
  const columns = besideNative.filter(([, ...pair]) => rows.some((row) => ratioOf(row, ...pair)));
  if (columns.length === 0) return "";
  const cell = (ratios) => {
    const { median, largest, count } = spread(ratios);
    return `${median.toFixed(2)}, at most ${largest.toFixed(2)} (${count} ${count === 1 ? "row" : "rows"})`;
  };
  const lines = classes.flatMap(([name, isIn]) => {
    const ratios = columns.map(([, ...pair]) =>
      rows.filter(isIn).flatMap((row) => ratioOf(row, ...pair) ?? []),
    );
    return ratios.some(({ length }) => length === 0) ? [] : [[name, ...ratios.map(cell)]];
  });
  const text = table(["all, twinccl / native", ...columns.map(([name]) => name)], lines);
  return `\nEvery collective in every mode and size beside C++, the median ratio and the largest:\n\n${text}`;
}

function latencyTable(rows) {
  const peers = ["twinccl", "native", "torch", "twinccl, one process", "native, one process"];
  const shown = peers.filter((peer) => rows.some((row) => medianOf(row, peer) !== undefined));
  const cell = ({ median_us: median, p99_us: p99 } = {}) =>
    median === undefined ? "" : `${timeText(median)} (${timeText(p99)})`;
  const lines = rows.map((row) => [row.mode, ...shown.map((peer) => cell(row.peers[peer]))]);
  return table(["awaited, 1 KiB", ...shown], lines);
}

function enduranceText({ cycles, ends }) {
  const lines = [];
  if (cycles !== undefined && cycles.not_run === undefined) {
    const grown = (count) => {
      const bytes = Math.round(count);
      return `${bytes < 0 ? "shrank" : "grew"} by ${Math.abs(bytes).toLocaleString("en-US")} bytes`;
    };
    const held = cycles.allocated_bytes_per_cycle;
    const ofWhich =
      typeof held === "number" ? `. Memory allocated by malloc ${grown(held)} a cycle` : "";
    lines.push(
      `${cycles.cycles} worlds of ${cycles.size} GPUs opened, used and closed in one process, ${cycles.cycle_ms.toFixed(0)} ms each. After the first ` +
        `${cycles.settling}, device memory ${grown(cycles.device_bytes_per_cycle)} a cycle and resident host memory ${grown(cycles.host_bytes_per_cycle)}${ofWhich}.`,
    );
  }
  if (ends !== undefined) {
    lines.push(
      `${ends.processes} processes ended without closing their world: ${ends.processes - ends.bad.length} with the status that they should.`,
    );
  }
  return lines.length === 0 ? "" : `\n${lines.join("\n")}\n`;
}

/** Links to results of other machines. */
function othersText(others) {
  const links = others.map(({ path, document: { ranks, gpus, commit } }) => {
    return `${ranks} × ${gpus[0]} at commit ${commit?.slice(0, 7) ?? "unknown"} (\`${path}\`)`;
  });
  return links.length === 0 ? "" : `\nMeasured as well: ${links.join(", ")}.\n`;
}

/** `NCCL 2.28.9` of 22809. */
const ncclText = (code) =>
  code === undefined
    ? "NCCL"
    : `NCCL ${Math.floor(code / 10000)}.${Math.floor(code / 100) % 100}.${code % 100}`;

/** Ratio to C++ of one process for each GPU, calls issued one by one: below 1 MiB and from there on. */
export function gpuSummary({ results, peers, gpus, ranks, commit }) {
  const nccl = ncclText(peers.find(({ name }) => name === "native")?.nccl);
  const machine = `${ranks} × ${gpus[0].replace("NVIDIA ", "")}, ${nccl}, commit ${commit.slice(0, 7)}`;
  const sides = [
    ["below 1 MiB", (bytes) => bytes < 2 ** 20],
    ["from 1 MiB", (bytes) => bytes >= 2 ** 20],
  ];
  return sides.flatMap(([name, isIn]) => {
    const rows = results.filter(({ bytes, mode }) => isIn(bytes) && !mode.includes("graph"));
    const ratios = rows.flatMap((row) => ratioOf(row, "twinccl", "native") ?? []);
    if (ratios.length === 0) return [];
    const { median, largest } = spread(ratios);
    const figure = `${median.toFixed(2)} times as long, at most ${largest.toFixed(2)}`;
    const subject = `every collective ${name}, one process per GPU`;
    return [[subject, "the same loop in C++", figure, machine]];
  });
}

/** The section of a result; `others` are results of other machines. */
export function gpuSection(document, path, others = []) {
  const { gpus, ranks, driver, peers, versions, commit, date, rounds, pinned, results } = document;
  const native = peers.find(({ name }) => name === "native");
  const torch = peers.find(({ name }) => name === "torch");
  const nccl = ncclText(native?.nccl ?? torch?.nccl);
  const facts = [
    `${ranks} × ${gpus[0]}`,
    `driver ${driver}`,
    `${nccl} without in-switch reduction`,
    ...(torch?.torch === undefined ? [] : [`PyTorch ${torch.torch}`]),
    `Node.js ${versions.node}`,
    `commit ${commit?.slice(0, 7) ?? "unknown"}`,
    date.slice(0, 10),
  ];
  const together = pinned?.processors === undefined ? "" : ". Each rank ran on one processor";
  const more = results.some(
    ({ turns = 1, peers: { twinccl } }) => twinccl?.samples > (rounds + 1) * turns,
  )
    ? ". Rows with scattered ratios were measured more often"
    : "";
  return `## Speed on GPUs

${facts.join(", ")}. Microseconds per call of float32; least is best. Figures are medians of ${rounds} rounds
that measured all in turn, with the same sizes, numbers of calls and library${together}${more}. One process for each GPU unless one process
drives all; calls are issued back to back, \`graph\` puts 20 of them into one CUDA graph. A ratio is the median of the ratios of
neighbouring measurements. \`native\` is a C++ loop over NCCL
(\`bench/native\`), \`koffi\` the same loop in JavaScript (small calls only), \`torch\` is torch.distributed. \`${path}\` holds every size, the spread and
what was left out; \`npm run bench:gpu -- --out FILE\` measures them again.

${allReduceTable(document.results)}
${othersTable(document.results)}${ratiosTable(document.results)}
An all-reduce that is awaited before the next one: median, and in brackets the 99th percentile.

${latencyTable(document.latency)}${enduranceText(document)}${othersText(others)}`;
}
