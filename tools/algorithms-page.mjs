/**
 * Writes the catalogue of docs/algorithms.md and its pictures: costs from the verifier-checked closed forms, pictures from
 * real traces.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { algorithmsOf, builtCollectives } from "../dist/algorithms/index.js";
import { createWorld, specifications } from "../dist/api/index.js";
import { sim, Trace } from "../dist/backends/sim/index.js";
import { options } from "./options.mjs";

const { check } = options({
  name: "docs:algorithms",
  about: "Writes the catalogue of docs/algorithms.md and its pictures.",
  options: { check: { help: "writes nothing, and fails where a file is out of date" } },
});

const root = fileURLToPath(new URL("../", import.meta.url));
const rankCounts = [2, 4, 8, 64];
const pictureRanks = 4;
const count = 4096;

/** The call of each collective for its picture, on rank `comm.rank` of `comm.size`. */
const calls = {
  allReduce: (comm) => comm.allReduce({ send: floats(count), op: "sum" }),
  reduce: (comm) => comm.reduce({ send: floats(count), op: "sum", root: 0 }),
  broadcast: (comm) => comm.broadcast({ recv: floats(count), root: 0 }),
  allGather: (comm) => comm.allGather({ send: floats(count), recv: floats(count * comm.size) }),
  allGatherv: (comm) =>
    comm.allGatherv({
      send: floats(skewed(comm.size)[comm.rank]),
      recv: floats(sum(skewed(comm.size))),
      recvCounts: skewed(comm.size),
    }),
  reduceScatter: (comm) =>
    comm.reduceScatter({ send: floats(count * comm.size), recv: floats(count), op: "sum" }),
  reduceScatterv: (comm) =>
    comm.reduceScatterv({
      send: floats(sum(skewed(comm.size))),
      recv: floats(skewed(comm.size)[comm.rank]),
      sendCounts: skewed(comm.size),
      op: "sum",
    }),
  allToAll: (comm) =>
    comm.allToAll({ send: floats(count * comm.size), recv: floats(count * comm.size) }),
  allToAllv: (comm) => {
    const sendCounts = skewed(comm.size).map((length) => Math.floor(length / (comm.rank + 1)));
    return comm.allToAllv({ send: floats(sum(sendCounts)), sendCounts });
  },
  gather: (comm) =>
    comm.gather({
      send: floats(count),
      root: 0,
      ...(comm.rank === 0 && { recv: floats(count * comm.size) }),
    }),
  scatter: (comm) =>
    comm.scatter({
      recv: floats(count),
      root: 0,
      ...(comm.rank === 0 && { send: floats(count * comm.size) }),
    }),
  barrier: (comm) => comm.barrier(),
};

function floats(length) {
  return new Float32Array(length);
}

function skewed(size) {
  return Array.from({ length: size }, (_, rank) => count * (rank + 1));
}

function sum(counts) {
  return counts.reduce((total, length) => total + length, 0);
}

async function picture(collective, name) {
  const trace = new Trace();
  const link = { latencyNs: 1000, gigabytesPerSecond: 4 };
  const world = await createWorld({
    backend: sim({ trace, link, algorithms: { [collective]: name } }),
    size: pictureRanks,
  });
  await world.run((comm) => calls[collective](comm));
  await world.close();
  return trace.toSvg(`${collective}, ${name}, ${pictureRanks} ranks`);
}

function costRow(algorithm) {
  const costs = rankCounts.map((ranks) => algorithm.cost({ ranks, count: ranks * 64 }));
  const most = costs.some((cost) => cost.bound) ? "≤ " : "";
  const steps = costs.map((cost) => cost.steps).join(" · ");
  const sent = costs.map(({ sentElements }, i) => round(sentElements / (rankCounts[i] * 64)));
  const credits = algorithm.credits(8);
  return `| ${algorithm.name} | ${algorithm.summary} | ${most}${steps} | ${most}${sent.join(" · ")} | ${credits} | ${algorithm.source} |`;
}

function round(value) {
  return String(Math.round(value * 100) / 100);
}

async function page() {
  const files = new Map();
  const lines = [
    "This part is generated from the catalogue by `npm run docs:algorithms`. Costs are the closed forms in the algorithms' headers,",
    "checked by the verifier for every program. Pictures are drawn from traces of real runs.",
    "",
    `Rounds and elements sent are given for ${rankCounts.join(" · ")} ranks. *Sent* is what the busiest rank sends, in multiples of the`,
    "call's count. In the pictures blue is a rank that sends, green one that receives; time is virtual and goes to the right.",
  ];
  for (const collective of builtCollectives) {
    lines.push("", `### ${collective}`, "");
    const { reduces } = specifications[collective];
    lines.push(reduces ? "Folds with an operator." : "Copies bytes.", "");
    lines.push(
      "| algorithm | what it does | rounds | sent | credits | source |",
      "|---|---|---|---|---|---|",
    );
    for (const algorithm of algorithmsOf(collective)) lines.push(costRow(algorithm));
    for (const { name } of algorithmsOf(collective)) {
      const file = `images/${kebab(collective)}-${name}.svg`;
      files.set(`docs/${file}`, await picture(collective, name));
      lines.push("", `![${collective} by ${name} on ${pictureRanks} ranks](${file})`);
    }
  }
  files.set("docs/algorithms.md", withCatalogue(readOrEmpty(`${root}docs/algorithms.md`), lines));
  return files;
}

/** The page with these lines between its two marks; what stands around them is written by hand. */
function withCatalogue(text, lines) {
  const [begin, end] = ["<!-- catalogue -->\n", "<!-- end of catalogue -->\n"];
  const [from, to] = [text.indexOf(begin) + begin.length, text.indexOf(end)];
  if (from < begin.length || to < from) {
    throw new Error(`docs/algorithms.md lacks the lines ${begin.trim()} and ${end.trim()}`);
  }
  return `${text.slice(0, from)}\n${lines.join("\n")}\n\n${text.slice(to)}`;
}

function kebab(name) {
  return name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

const stale = [];
mkdirSync(`${root}docs/images`, { recursive: true });
for (const [file, content] of await page()) {
  if (!check) writeFileSync(root + file, content);
  else if (readOrEmpty(root + file) !== content) stale.push(file);
}
if (stale.length > 0) {
  console.error(`out of date: ${stale.join(", ")}; run: npm run docs:algorithms`);
  process.exitCode = 1;
}

function readOrEmpty(path) {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
