/** Every rule of plans over hosts is exposed by recorded results: broken on purpose, some of them come out otherwise. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { buildModules } from "../support/build-modules.ts";
import { exposedBy, mutants } from "./mutants.ts";

const folder = mkdtempSync(join(tmpdir(), "twinccl-mutants-"));
const [few, many] = [join(folder, "few.jsonl"), join(folder, "many.jsonl")];
afterAll(() => rmSync(folder, { recursive: true }));

/** Small calls, every third of them, and some of these, which expose most mutants. */
beforeAll(() => {
  buildModules(folder);
  const file = new URL("nccl-2.28.9-h200-hosts.jsonl", import.meta.url);
  const [head = "", ...lines] = readFileSync(file, "utf8").trimEnd().split("\n");
  const small = lines.filter((line) => Number(/"count":(\d+)/.exec(line)?.[1]) < 20_000);
  const third = small.filter((_, at) => at % 3 === 0);
  writeFileSync(many, [head, ...third].join("\n"));
  writeFileSync(few, [head, ...third.filter((_, at) => at % 12 === 0)].join("\n"));
});

test.each(mutants)(
  "without $rule",
  (mutant) => {
    const exposed = exposedBy(mutant, folder, few) || exposedBy(mutant, folder, many);
    expect(exposed).toBeGreaterThan(0);
  },
  60_000,
);
