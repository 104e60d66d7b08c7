// docs/benchmarks.md and the speed table of README.md, made from results of `npm run bench:peers`, `bench:tcp`,
// `bench:gpu` and `bench:webgpu` (`--out FILE`).
// npm run docs:speed -- --help
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { options, plain } from "../tools/options.mjs";
import { gpuSection, gpuSummary, table } from "./speed/gpu.mjs";
import { peersSection, peersSummary } from "./speed/peers.mjs";
import { tcpSection } from "./speed/tcp.mjs";
import { webgpuSection } from "./speed/webgpu.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const results = join(root, "bench", "results");
const beginning = /<!-- speed: (\S+) -->\n/g;
const end = "<!-- end of speed -->\n";

const read = (path) => JSON.parse(readFileSync(join(root, path), "utf8"));

/** The kind of a result, which its file name begins with. */
const kindOf = (path) =>
  ["webgpu", "peers", "tcp", "summary"].find((kind) => basename(path).startsWith(kind)) ?? "gpu";

/** Results of other machines with GPUs. */
function otherGpuResults(path) {
  return readdirSync(results)
    .filter((name) => /^gpu-\w+\.json$/.test(name) && name !== basename(path))
    .map((name) => join("bench", "results", name))
    .map((other) => ({ path: other, document: read(other) }));
}

const textOf = {
  gpu: (path) => gpuSection(read(path), path, otherGpuResults(path)),
  webgpu: (path) => {
    const beside = path.replace(/\.json$/, "-verify.json");
    const verified = existsSync(join(root, beside)) ? read(beside) : undefined;
    return webgpuSection(read(path), path, verified, beside);
  },
  peers: (path) => peersSection(read(path), path),
  tcp: (path) => tcpSection(read(path), path),
};

function marked(path) {
  return `<!-- speed: ${path} -->\n${textOf[kindOf(path)](path)}\n${end}`;
}

/** Three rows of the results that the page of benchmarks shows. */
function summary(page) {
  const document = (kind) => read(present(page, kind).path);
  const rows = [...gpuSummary(document("gpu")), ...peersSummary(document("peers"))];
  const head = ["twinccl", "beside", "takes", "measured on"];
  return `<!-- speed: summary -->\n${table(head, rows)}${end}`;
}

/** The section of a kind as a page has it, with the file that it names; `undefined` when there is none. */
function present(text, kind) {
  const found = [...text.matchAll(beginning)].find(([, path]) => kindOf(path) === kind);
  if (found === undefined) return undefined;
  const stop = text.indexOf(end, found.index) + end.length;
  return { path: found[1], start: found.index, stop, text: text.slice(found.index, stop) };
}

const replaced = (text, { start, stop }, section) =>
  text.slice(0, start) + section + text.slice(stop);

function fault(page, text, kind) {
  const section = present(text, kind);
  if (section === undefined) {
    const files = readdirSync(results).filter((name) => name.startsWith(`${kind}-`));
    return files.length === 0 ? undefined : `${page} has no section for ${files.join(", ")}`;
  }
  if (section.text === marked(section.path)) return undefined;
  return `${page}'s section differs from ${section.path}: run node bench/speed-section.mjs ${section.path}`;
}

/** The faults of both pages. */
function faults() {
  const text = readFileSync(values.page, "utf8");
  const page = basename(values.page);
  const found = Object.keys(textOf).flatMap((kind) => fault(page, text, kind) ?? []);
  if (found.length > 0) return found;
  const short = present(readFileSync(values.readme, "utf8"), "summary");
  if (short?.text === summary(text)) return [];
  return [`${basename(values.readme)}'s table differs from ${page}: run npm run docs:speed`];
}

/** Writes the section of a result into the page, at its end where the page has none of that kind yet. */
function writeSection(path) {
  const text = readFileSync(values.page, "utf8");
  const section = present(text, kindOf(path));
  const added = `${text}\n${marked(path)}`;
  writeFileSync(values.page, section ? replaced(text, section, marked(path)) : added);
}

/** Writes the table of README.md, where both results that it takes rows from have a section. */
function writeSummary() {
  const page = readFileSync(values.page, "utf8");
  const readme = readFileSync(values.readme, "utf8");
  const section = present(readme, "summary");
  if (section === undefined || !present(page, "gpu") || !present(page, "peers")) return;
  writeFileSync(values.readme, replaced(readme, section, summary(page)));
}

const values = options({
  name: "docs:speed",
  about:
    "Writes a section of docs/benchmarks.md out of a file of measurements, and the speed table of README.md.",
  options: {
    check: { help: "compares both pages with the files that they name, and writes nothing" },
    print: { help: "prints the section instead" },
    page: { is: plain("FILE"), default: join(root, "docs/benchmarks.md"), help: "another page" },
    readme: { is: plain("FILE"), default: join(root, "README.md"), help: "another README" },
  },
  positionals: "FILE",
});
const path = values._[0] === undefined ? undefined : relative(root, values._[0]);
if (values.check) {
  const found = faults();
  for (const each of found) process.stderr.write(`${each}\n`);
  if (found.length > 0) process.exitCode = 1;
} else if (values.print) {
  process.stdout.write(marked(path ?? ""));
} else {
  if (path !== undefined) writeSection(path);
  writeSummary();
}
