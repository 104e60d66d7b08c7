// The sections of README.md on speed, made from results of `npm run bench:peers`, `bench:gpu` and `bench:webgpu` (`--out
// FILE`).
// npm run docs:speed -- --help
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { options, plain } from "./options.mjs";
import { gpuSection } from "./speed/gpu.mjs";
import { peersSection } from "./speed/peers.mjs";
import { webgpuSection } from "./speed/webgpu.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const results = join(root, "bench", "results");
const beginning = /<!-- speed: (\S+) -->\n/g;
const end = "<!-- end of speed -->\n";
/** The section that they stand before. */
const follower = "## How it is tested\n";

const read = (path) => JSON.parse(readFileSync(join(root, path), "utf8"));

/** What a result is of. */
const kindOf = (path) =>
  ["webgpu", "peers"].find((kind) => basename(path).startsWith(kind)) ?? "gpu";

/** What was measured on other machines with GPUs. */
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
};

function marked(path) {
  return `<!-- speed: ${path} -->\n${textOf[kindOf(path)](path)}\n${end}`;
}

/** The section of a kind as README.md has it, with the file that it names; `undefined` when there is none. */
function present(text, kind) {
  const found = [...text.matchAll(beginning)].find(([, path]) => kindOf(path) === kind);
  if (found === undefined) return undefined;
  const stop = text.indexOf(end, found.index) + end.length;
  return { path: found[1], start: found.index, stop, text: text.slice(found.index, stop) };
}

function fault(text, kind) {
  const section = present(text, kind);
  if (section === undefined) {
    const files = readdirSync(results).filter((name) => name.startsWith(`${kind}-`));
    return files.length === 0 ? undefined : `README.md has no section for ${files.join(", ")}`;
  }
  if (section.text === marked(section.path)) return undefined;
  return `README.md's section differs from ${section.path}: run node tools/speed-section.mjs ${section.path}`;
}

function write(readme, path) {
  const text = readFileSync(readme, "utf8");
  const section = present(text, kindOf(path));
  const at = section?.start ?? text.indexOf(follower);
  if (at < 0) throw new Error(`README.md has no line "${follower.trim()}"`);
  const rest = section === undefined ? `\n${text.slice(at)}` : text.slice(section.stop);
  writeFileSync(readme, text.slice(0, at) + marked(path) + rest);
}

const values = options({
  name: "docs:speed",
  about: "Writes the section on speed of README.md out of a file of measurements.",
  options: {
    check: { help: "only says whether the section is that of the file it names" },
    print: { help: "prints the section instead" },
    page: { is: plain("FILE"), default: join(root, "README.md"), help: "another page" },
  },
  positionals: "FILE",
});
if (values.check) {
  const text = readFileSync(values.page, "utf8");
  const faults = Object.keys(textOf).flatMap((kind) => fault(text, kind) ?? []);
  for (const each of faults) process.stderr.write(`${each}\n`);
  if (faults.length > 0) process.exitCode = 1;
} else {
  const path = relative(root, values._[0] ?? "");
  if (values.print) process.stdout.write(marked(path));
  else write(values.page, path);
}
