/**
 * The examples of README.md and docs/*.md, run. A `js` block is run as a module when a `text`
 * block follows it, and must print exactly that; so is a `sh` block marked `check`, as a command.
 * A `js` block marked `check` without a `text` block must print nothing. Blocks marked `long` run in `npm run test:all`.
 */

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, test } from "vitest";
import { isAll, isRest } from "./support/seed.ts";

interface Fence {
  readonly language: string;
  readonly words: readonly string[];
  readonly line: number;
  readonly body: string;
  /** A heading stands between this block and the one before. */
  readonly afterHeading: boolean;
}

interface Example {
  readonly kind: "module" | "command";
  readonly line: number;
  readonly body: string;
  readonly expected: string;
  readonly isLong: boolean;
}

function fencesOf(markdown: string): Fence[] {
  const fences: Fence[] = [];
  let open: { language: string; words: string[]; line: number; body: string[] } | undefined;
  let afterHeading = false;
  for (const [at, line] of markdown.split("\n").entries()) {
    const fence = /^```(.*)$/.exec(line);
    if (open !== undefined && fence === null) open.body.push(line);
    else if (open !== undefined) {
      fences.push({ ...open, body: `${open.body.join("\n")}\n`, afterHeading });
      open = undefined;
      afterHeading = false;
    } else if (fence !== null) {
      const [language = "", ...words] = (fence[1] ?? "").trim().split(/\s+/);
      open = { language, words, line: at + 1, body: [] };
    } else if (/^#+ /.test(line)) afterHeading = true;
  }
  return fences;
}

function examplesOf(markdown: string): Example[] {
  const fences = fencesOf(markdown);
  return fences.flatMap((fence, at) => {
    const next = fences[at + 1];
    const isModule = fence.language === "js" || fence.language === "mjs";
    const output = next?.language === "text" && !next.afterHeading ? next.body : undefined;
    const isMarked = fence.words.includes("check");
    const isChecked = isModule ? isMarked || output !== undefined : isMarked;
    if (!isChecked || (!isModule && fence.language !== "sh")) return [];
    const kind = isModule ? "module" : "command";
    const isLong = fence.words.includes("long");
    return [{ kind, line: fence.line, body: fence.body, expected: output ?? "", isLong }];
  });
}

const root = fileURLToPath(new URL("../", import.meta.url));

// The outputs are those of a machine without GPUs, wherever the test runs.
const env = { ...process.env, FORCE_COLOR: "0", CUDA_VISIBLE_DEVICES: "" };
const options = { cwd: root, encoding: "utf8", timeout: 200_000, env } as const;

/** Ends the output of an example; modules and plain commands run one after another in one process, which loads the package once. */
const endOfExample = "-- end of example --";

/** The outputs of examples, in their order. */
function printed(examples: readonly Example[]): string[] {
  const joined = examples.filter(isJoined);
  const outputs = outputsOfJoined(joined);
  return examples.map((example) =>
    isJoined(example)
      ? (outputs[joined.indexOf(example)] ?? "")
      : outputOf(spawnSync("sh", ["-e", "-c", withoutNpm(example.body)], options)),
  );
}

/** A command line of the package without anything for a shell, but for the number of lines that `head` leaves, and without processes. */
const plainLine =
  /^npm run -s twinccl -- (?!launch|.* --backend tcp)([\w\s./:,=-]+?)(?: \| head -n (\d+))?$/;

/** Words and number of lines of the command lines of an example, if all are plain. */
function plainLines({ kind, body }: Example): [words: string[], lines: number][] | undefined {
  if (kind !== "command") return undefined;
  const lines = body.trimEnd().replaceAll("\\\n", " ").split("\n");
  const found = lines.map((line) => plainLine.exec(line));
  if (!found.every((match) => match !== null)) return undefined;
  return found.map(([, words = "", head = "1000"]) => [words.split(/\s+/), Number(head)]);
}

const isJoined = (example: Example): boolean =>
  example.kind === "module" || plainLines(example) !== undefined;

/** The start of npm and the check of dist take longer than most commands. */
function withoutNpm(command: string): string {
  return command.replaceAll("npm run -s twinccl --", "node dist/cli/main.js");
}

function outputsOfJoined(examples: readonly Example[]): string[] {
  // Inside the repository, so that `import "twinccl"` is the package's own dist.
  const folder = mkdtempSync(`${root}.docs-check-`);
  try {
    const runs = examples.map((example, at) => {
      const lines = plainLines(example);
      if (lines !== undefined) return `await run(() => command(${JSON.stringify(lines)}));\n`;
      writeFileSync(`${folder}/${at}.mjs`, example.body);
      return `await run(() => import("./${at}.mjs"));\n`;
    });
    writeFileSync(`${folder}/all.mjs`, runner + runs.join(""));
    const output = outputOf(spawnSync(process.execPath, [`${folder}/all.mjs`], options));
    return output.split(`${endOfExample}\n`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The functions of the process that runs examples: `run` ends the output of one, `command` runs its command lines. */
const runner = `
  import { backends } from "../dist/cli/backends.js";
  import { runCli } from "../dist/cli/cli.js";
  const run = async (example) => {
    await example().catch((error) => console.log("uncaught", error));
    console.log("${endOfExample}");
  };
  const command = async (lines) => {
    for (const [words, most] of lines) {
      let text = "";
      const out = (more) => (text += more);
      const status = await runCli(words, { out, err: out, terminal: false, backends: async () => backends });
      process.stdout.write(text.split(/(?<=\\n)/).slice(0, most).join(""));
      if (status !== 0) throw status;
    }
  };
`;

/** The output as a reader sees it, errors included, so that an example that fails cannot pass. */
function outputOf(result: ReturnType<typeof spawnSync>): string {
  if (result.status === 0) return String(result.stdout);
  return `${result.stdout}${result.stderr}\nexit status ${result.status ?? result.signal}`;
}

const trimmed = (text: string): string => text.replace(/[ \t]+$/gm, "").trimEnd();

const docs = readdirSync(`${root}docs`).filter((name) => name.endsWith(".md"));
const pages = ["README.md", ...docs.sort().map((name) => `docs/${name}`)];

describe("the reader of examples", () => {
  const page = [
    "```js\nconsole.log(1);\n```\n\nprints\n\n```text\n1\n```",
    "```sh\nnpm install\n```\n```text\nnot checked\n```",
    "```sh check\necho hi\n```\n```text\nhi\n```",
    "```sh check\nnpm run -s twinccl -- explain all-reduce --count 8 \\\n  --ranks 2 | head -n 1\n```\n```text\nallReduce float32[8] sum on 2 ranks: Ring LL\n```",
    "```mjs\nunchecked();\n```\n\n# Next\n\n```text\nof another section\n```",
    "```js check\n```",
  ].join("\n");
  const examples = examplesOf(page);

  test("finds exactly the examples marked as checked", () => {
    expect(examples.map((each) => [each.kind, each.body, each.expected])).toEqual([
      ["module", "console.log(1);\n", "1\n"],
      ["command", "echo hi\n", "hi\n"],
      ["command", expect.stringContaining(" | head -n 1\n"), expect.stringContaining("Ring LL\n")],
      ["module", "\n", ""],
    ]);
  });

  test("runs them, and shows a failure", () => {
    expect(examples.map(isJoined)).toEqual([true, false, true, true]);
    expect(printed(examples)).toEqual(examples.map((each) => each.expected));
    const broken: Example = { ...examples[0]!, body: "throw 1;" };
    const after: Example = { ...examples[0]!, body: "process.exit(2);" };
    const outputs = printed([examples[0]!, broken, examples[0]!, after]);
    expect(outputs).toEqual(["1\n", "uncaught 1\n", "1\n", "\nexit status 2"]);
  });
});

describe("the examples", () => {
  const examplesByPage = pages.map((page) => examplesOf(readFileSync(`${root}${page}`, "utf8")));
  const isChosen = ({ isLong }: Example): boolean => (isLong ? isAll : !isRest);
  const outputs = new Map<Example, string>();

  beforeAll(() => {
    const { status } = spawnSync(process.execPath, ["tools/build.mjs", "--is-fresh"], {
      cwd: root,
    });
    if (status !== 0) throw new Error("dist is older than src: run `npm run build`");
    const examples = examplesByPage.flat().filter(isChosen);
    for (const [at, output] of printed(examples).entries()) {
      outputs.set(examples[at] as Example, output);
    }
  }, 240_000);

  test("stand in README.md", () => {
    expect(examplesByPage[pages.indexOf("README.md")]).not.toHaveLength(0);
  });

  test("of docs/testing.md are all checked", () => {
    const page = "docs/testing.md";
    const fences = fencesOf(readFileSync(`${root}${page}`, "utf8"));
    const modules = fences.filter(({ language }) => language === "js");
    const examples = examplesByPage[pages.indexOf(page)] ?? [];
    expect(examples.map(({ line }) => line)).toEqual(modules.map(({ line }) => line));
  });

  const rows = pages.flatMap((page, at) =>
    (examplesByPage[at] ?? [])
      .filter(isChosen)
      .map((example) => ({ page, line: example.line, example })),
  );
  test.each(rows)("of $page print what they say, line $line", ({ example }) => {
    expect(trimmed(outputs.get(example) ?? "")).toBe(trimmed(example.expected));
  });
});
