/** Output of programs and algorithms of a file, which once stood in the documents that commands write to standard output. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { someOf } from "../support/seed.ts";

const main = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));
const line = new URL("../../examples/line.mjs", import.meta.url).href;
const folder = mkdtempSync(join(tmpdir(), "twinccl-document-"));
afterAll(() => rmSync(folder, { recursive: true }));

const printing = join(folder, "printing.mjs");
const algorithm = join(folder, "algorithm.mjs");

/** Every way in which a rank prints, by the word that it prints. */
const ways = ["console", "stream", "import", "pipe", "thread", "child"];

beforeAll(() => {
  writeFileSync(
    printing,
    `import { spawnSync } from "node:child_process";
     import { stdout } from "node:process";
     import { Readable } from "node:stream";
     import { Worker } from "node:worker_threads";
     import { once } from "node:events";
     export default async (comm) => {
       await comm.barrier();
       if (comm.rank === 0) {
         console.log("by console");
         process.stdout.write("by stream\\n");
         stdout.write("by import\\n");
         Readable.from(["by pipe\\n", "x".repeat(2 ** 17), "\\n"]).pipe(process.stdout, { end: false });
         await once(new Worker("console.log('by thread')", { eval: true }), "exit");
         spawnSync("echo", ["by child"], { stdio: ["ignore", process.stdout, "inherit"] });
       }
       return comm.rank;
     };\n`,
  );
  writeFileSync(
    algorithm,
    `import line from "${line}";
     console.log("by console");
     export default { ...line, write: (...given) => { process.stdout.write("by stream\\n"); line.write(...given); } };\n`,
  );
});

function run(text: string): { status: number | null; stdout: string; stderr: string } {
  const args = [main, ...text.split(" ")];
  return spawnSync(process.execPath, args, { encoding: "utf8", timeout: 60_000 });
}

const printed = (text: string): string[] =>
  ways.filter((way) => text.split("\n").includes(`by ${way}`));

describe("a program that prints", () => {
  test.each([
    ["verify", `verify ${printing} -n 2 --against sim:seed=1 --json`],
    ["trace", `trace ${printing} -n 2 --format chrome`],
  ])("leaves the document of %s whole", (_, text) => {
    const { status, stdout, stderr } = run(text);
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toBeTypeOf("object");
    expect(printed(stderr)).toEqual(ways);
  });

  test("prints to standard output under run", () => {
    const { status, stdout, stderr } = run(`run ${printing} -n 2`);
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(printed(stdout)).toEqual(ways);
    expect(stdout).toContain("rank 1: 1\n");
  });
});

const commands = [
  ["explain", "explain all-reduce -n 3 --count 6 --json --algorithm"],
  ["predict", "predict all-reduce -n 3 -b 64 -e 64 --json --algorithm"],
  ["bench", "bench all-reduce -g 3 -b 64 -e 64 -n 1 -w 0 --json --algorithm"],
  ["verify", "verify --programs --ranks 3 --json --collective all-reduce --algorithm"],
] as const;

test.each(someOf(commands))(
  "an algorithm that prints leaves the document of %s whole",
  (_, text) => {
    const { status, stdout, stderr } = run(`${text} ${algorithm}`);
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toBeTypeOf("object");
    expect(printed(stderr)).toEqual(["console", "stream"]);
  },
);
