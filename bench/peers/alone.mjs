// One of the subjects in a process of its own: what other rows leave behind, such as threads that are starting, makes
// small calls slower. `node bench/peers/alone.mjs NAME COUNT` prints what it found as JSON.

import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { graphCalls, smallCalls, smallPrograms } from "./subjects.mjs";

const subjects = { graphCalls, smallCalls, smallPrograms };
const self = fileURLToPath(import.meta.url);

/** The time of a subject when nothing else has run in its process. */
export function alone(name, count) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [self, name, String(count)], {
    encoding: "utf8",
  });
  if (status !== 0) return { reason: `${name}: ${stderr.trim().split("\n")[0]}` };
  return JSON.parse(stdout);
}

if (process.argv[1] === self) {
  const [name, count] = process.argv.slice(2);
  process.stdout.write(JSON.stringify(await subjects[name](Number(count))));
}
