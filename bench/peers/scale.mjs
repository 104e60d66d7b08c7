// What twinccl does at scale, by its own benches in processes of their own: figures by the names that they have there.

import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const tools = fileURLToPath(new URL("../../tools/", import.meta.url));

/** The figures of `npm run bench -- engine`. */
export function engineFigures(folder) {
  const out = join(folder, "engine.json");
  const args = [join(tools, "bench.mjs"), "engine.bench", "--out", out];
  const { status, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  if (status !== 0) return { reason: `bench engine: ${stderr.trim().split("\n")[0]}` };
  const { engine } = JSON.parse(readFileSync(out, "utf8")).benches;
  return { figures: new Map(engine.map(({ name, value }) => [name, value])) };
}

/** The slowest of the programs that are folded to one rank. */
export function slowestFold(figures) {
  const folds = [...figures].filter(([name]) => name.endsWith(", 2^20 ranks, fold"));
  return 1000 * Math.max(...folds.map(([, seconds]) => seconds));
}

/** Seconds of `npm run verify:all`: every program of the catalogue for 1 to 256 ranks. */
export function verifyAll() {
  const { status, stdout, stderr } = spawnSync(process.execPath, [join(tools, "verify-all.mjs")], {
    encoding: "utf8",
  });
  if (status !== 0) return { reason: `verify:all: ${stderr.trim().split("\n")[0] || "problems"}` };
  const seconds = /^all .* (\S+)$/m.exec(stdout)?.[1];
  return { times: [Number(seconds)] };
}
