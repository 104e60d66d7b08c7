/**
 * The examples of README.md and docs/*.md, run. A `js` block is run as a module when a `text`
 * block follows it, and must print exactly that; so is a `sh` block marked `check`, as a command.
 * A `js` block marked `check` without a `text` block must print nothing. Blocks marked `long` run in `npm run test:all`.
 */

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, test } from "vitest";
import { isAll } from "./support/seed.ts";

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
    if (fence.words.includes("long") && !isAll) return [];
    const isChecked = isModule ? isMarked || output !== undefined : isMarked;
    if (!isChecked || (!isModule && fence.language !== "sh")) return [];
    const kind = isModule ? "module" : "command";
    return [{ kind, line: fence.line, body: fence.body, expected: output ?? "" }];
  });
}

const root = fileURLToPath(new URL("../", import.meta.url));
const { scripts } = JSON.parse(readFileSync(`${root}package.json`, "utf8"));

const env = { ...process.env, FORCE_COLOR: "0" };
const options = { cwd: root, encoding: "utf8", timeout: 60_000, env } as const;

/** Ends the output of a module; the modules of a page run one after another in one process. */
const endOfModule = "-- end of module --";

/** The outputs of examples, in their order. */
function printed(examples: readonly Example[]): string[] {
  const modules = examples.filter(({ kind }) => kind === "module");
  const outputs = outputsOfModules(modules);
  return examples.map((example) =>
    example.kind === "module"
      ? (outputs[modules.indexOf(example)] ?? "")
      : outputOf(spawnSync("sh", ["-e", "-c", withoutNpm(example.body)], options)),
  );
}

/** npm's start takes longer than most commands: its script runs instead. */
function withoutNpm(command: string): string {
  return command.replaceAll("npm run -s twinccl --", scripts.twinccl);
}

function outputsOfModules(modules: readonly Example[]): string[] {
  // Inside the repository, so that `import "twinccl"` is the package's own dist.
  const folder = mkdtempSync(`${root}.docs-check-`);
  try {
    const names = modules.map(({ body }, at) => {
      writeFileSync(`${folder}/${at}.mjs`, body);
      return `./${at}.mjs`;
    });
    const all = names.map((name) => `await import("${name}");\nconsole.log("${endOfModule}");\n`);
    writeFileSync(`${folder}/all.mjs`, all.join(""));
    const output = outputOf(spawnSync(process.execPath, [`${folder}/all.mjs`], options));
    return output.split(`${endOfModule}\n`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The output as a reader sees it, errors included, so that an example that fails cannot pass. */
function outputOf(result: ReturnType<typeof spawnSync>): string {
  if (result.status === 0) return String(result.stdout);
  return `${result.stdout}${result.stderr}\nexit status ${result.status ?? result.signal}`;
}

const trimmed = (text: string): string => text.replace(/[ \t]+$/gm, "").trimEnd();

const docs = existsSync(`${root}docs`)
  ? readdirSync(`${root}docs`).filter((name) => name.endsWith(".md"))
  : [];
const pages = ["README.md", ...docs.sort().map((name) => `docs/${name}`)];

describe("the reader of examples", () => {
  const page = [
    "```js\nconsole.log(1);\n```\n\nprints\n\n```text\n1\n```",
    "```sh\nnpm install\n```\n```text\nnot checked\n```",
    "```sh check\necho hi\n```\n```text\nhi\n```",
    "```mjs\nunchecked();\n```\n\n# Next\n\n```text\nof another section\n```",
    "```js check\n```",
  ].join("\n");
  const examples = examplesOf(page);

  test("finds exactly the examples marked as checked", () => {
    expect(examples.map((each) => [each.kind, each.body, each.expected])).toEqual([
      ["module", "console.log(1);\n", "1\n"],
      ["command", "echo hi\n", "hi\n"],
      ["module", "\n", ""],
    ]);
  });

  test("runs them, and shows a failure", () => {
    expect(printed(examples)).toEqual(examples.map((each) => each.expected));
    const broken: Example = { kind: "module", line: 1, body: "throw 1;", expected: "" };
    expect(printed([examples[0]!, broken])[1]).toContain("exit status 1");
  });
});

describe.each(pages)("%s", (page) => {
  const path = `${root}${page}`;
  const examples = existsSync(path) ? examplesOf(readFileSync(path, "utf8")) : [];
  let outputs: readonly string[] = [];

  beforeAll(() => {
    const { status } = spawnSync(process.execPath, ["tools/build.mjs", "--is-fresh"], {
      cwd: root,
    });
    if (status !== 0) throw new Error("dist is older than src: run `npm run build`");
    outputs = printed(examples);
  });

  test("has a checked example where one is required", () => {
    expect(examples.length).toBeGreaterThanOrEqual(page === "README.md" ? 1 : 0);
    if (page !== "docs/testing.md") return;
    const fences = fencesOf(readFileSync(path, "utf8"));
    const modules = fences.filter(({ language }) => language === "js");
    expect(examples.map(({ line }) => line)).toEqual(modules.map(({ line }) => line));
  });

  test.each(examples)(
    "the example at line $line prints what it says",
    (example) => {
      expect(trimmed(outputs[examples.indexOf(example)] ?? "")).toBe(trimmed(example.expected));
    },
    70_000,
  );
});
