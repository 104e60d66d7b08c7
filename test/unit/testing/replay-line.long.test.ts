/** The line that a failing run prints is a command: run in a shell, it goes straight to the shrunk case. */
import { spawnSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { commandOf } from "../../support/seed.ts";

const root = fileURLToPath(new URL("../../../", import.meta.url));
// Inside the repository, so that `import "twinccl"` is the package's own dist.
const file = `.docs-check-replay-${process.pid}.mjs`;

const script = `
import { sim } from "twinccl/sim";
import { checkProperty, environmentReplay, programs, runProgram } from "twinccl/testing";

let tried = 0;
const law = async (program) => {
  tried += 1;
  const { outcomes } = await runProgram(sim(), program);
  const wrong = outcomes.find(({ call }) => call.kind === "reduceScatterv" && call.counts.length > 2);
  if (wrong !== undefined) throw new Error("planted: " + wrong.call.kind);
};
const options = { ...environmentReplay(), runs: 500, command: "node ${file}" };
await checkProperty(programs(), law, options).catch((error) => {
  console.log(error.message);
  console.log("cases tried: " + tried);
  process.exitCode = 1;
});
`;

interface Failure {
  readonly message: string;
  readonly shrunk: string;
  readonly line: string;
  readonly tried: number;
}

function failureOf(command: string): Failure {
  const env = { ...process.env };
  for (const name of ["TWINCCL_SEED", "TWINCCL_PATH", "TWINCCL_COMMANDS"]) delete env[name];
  const { status, stdout, stderr } = spawnSync("sh", ["-c", command], {
    cwd: root,
    env,
    encoding: "utf8",
    timeout: 60_000,
  });
  expect(status, stderr).toBe(1);
  const lines = stdout.trim().split("\n");
  const [message = "", , shrunk = "", line = "", tried = ""] = lines;
  expect(lines).toHaveLength(5);
  return {
    message,
    shrunk: shrunk.replace(/^after \d+ shrinks: /, ""),
    line: line.replace(/^replay: /, ""),
    tried: Number(tried.replace("cases tried: ", "")),
  };
}

beforeAll(() => writeFileSync(root + file, script));
afterAll(() => rmSync(root + file, { force: true }));

test("of a program", () => {
  const found = failureOf(`node ${file}`);
  expect(found.message).toBe("planted: reduceScatterv");
  expect(JSON.parse(found.shrunk)).toMatchObject({ size: 3, splits: [] });
  expect(found.line).toMatch(/^TWINCCL_SEED=\d+ TWINCCL_PATH=[\d:]+ node \S+$/);
  const again = failureOf(found.line);
  expect(again).toMatchObject({ message: found.message, shrunk: found.shrunk });
  expect(again.tried).toBeLessThan(found.tried);
}, 120_000);

test("of a test of this project, whatever its name", () => {
  const name = "float32[7]: what's $HOME (1 + `x`)";
  const command = commandOf("/somewhere/test/property/mine.test.ts", `a suite > ${name}`);
  const echoed = spawnSync(
    "sh",
    ["-c", command.replace(/^npx vitest run( --mode all)?/, "printf '%s\\n'")],
    {
      encoding: "utf8",
    },
  ).stdout.split("\n");
  expect(echoed.slice(0, 2)).toEqual(["test/property/mine.test.ts", "-t"]);
  const pattern = new RegExp(echoed[2] ?? "");
  expect(pattern.test(`a suite ${name}`)).toBe(true);
  expect(pattern.test(`another suite ${name}`)).toBe(false);
  expect(pattern.test(`a suite ${name} too`)).toBe(false);
});
