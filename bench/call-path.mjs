// The path of one all-reduce through the package: the files and functions that it enters, in order, and how many. The first
// call, the second, one in a loop of awaited calls, and one behind calls that are not awaited yet.
// npm run -s call-path -- --help

import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { build, isStale } from "../tools/build.mjs";
import { oneOf, options } from "../tools/options.mjs";

const program = fileURLToPath(new URL("call-path/program.mjs", import.meta.url));
const quiet = ["--disable-warning=DEP0205"];
const backends = {
  sim: "4 simulated ranks, cpu(), from the call of the last rank until a rank goes on",
  nccl: "one rank over a library that does nothing, until the program goes on",
  tcp: "one of two processes, until the program goes on",
};

/** For each kind of call: its entries in order, and the index of the one in which data moves (-1: in none). */
export function callPaths(backend) {
  // Node.js 26 warns of the only module hooks that Node.js 20 has.
  const { status, stdout } = spawnSync(process.execPath, [...quiet, program, backend], {
    encoding: "utf8",
    maxBuffer: 2 ** 28,
    stdio: ["ignore", "pipe", "inherit"],
  });
  if (status !== 0) throw new Error(`call-path: the program for ${backend} ended with ${status}`);
  return JSON.parse(stdout);
}

/** Files and functions entered, and how often the file changes from one entry to the next. */
function counts(entries) {
  const changes = entries.filter(([file], at) => at > 0 && entries[at - 1][0] !== file).length;
  return {
    files: new Set(entries.map(([file]) => file)).size,
    functions: new Set(entries.map(([file, name]) => `${file} ${name}`)).size,
    changes,
  };
}

/** A line for each kind of call of a backend. */
export function countLines(backend, paths) {
  const rows = Object.entries(paths).map(([name, { entries, moved }]) => {
    const all = counts(entries);
    const before = counts(moved < 0 ? entries : entries.slice(0, moved + 1));
    const numbers = [all.files, all.functions, all.changes, before.files, before.changes];
    return `${name.padEnd(14)}${numbers.map((each) => String(each).padStart(11)).join("")}`;
  });
  const head = ["files", "functions", "changes", "files", "changes"];
  return [
    `# ${backend}: ${backends[backend]}`,
    `${"".padEnd(14)}${"in all".padStart(33)}${"until data moves".padStart(22)}`,
    `${"all-reduce".padEnd(14)}${head.map((each) => each.padStart(11)).join("")}`,
    ...rows,
  ];
}

/** The entries in order; consecutive entries of one file on one line. */
function listLines(entries) {
  const lines = [];
  for (const [at, [file, name]] of entries.entries()) {
    if (at > 0 && entries[at - 1][0] === file) lines[lines.length - 1] += ` ${name}`;
    else lines.push(`  ${file}: ${name}`);
  }
  return lines;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const values = options({
    name: "call-path",
    about:
      "Shows the files and functions that an all-reduce enters. Changes count how often the file differs from one entry to the next.",
    options: {
      backend: { is: oneOf("sim", "nccl", "tcp"), help: "one alone; without it all" },
      list: { help: "print the entries in order as well" },
    },
  });
  if (isStale() && !build()) process.exit(1);
  const names = values.backend === undefined ? Object.keys(backends) : [values.backend];
  for (const backend of names) {
    const paths = callPaths(backend);
    console.log(countLines(backend, paths).join("\n"));
    if (values.list) {
      for (const [name, { entries }] of Object.entries(paths)) {
        console.log(`\n${backend}, ${name}:\n${listLines(entries).join("\n")}`);
      }
    }
    console.log("");
  }
}
