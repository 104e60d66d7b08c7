/** A recording over processes on the machine of its first line, and its check. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { joinedText } from "../../support/graph-files.ts";
import { cli } from "./harness.ts";

const folder = mkdtempSync(join(tmpdir(), "twinccl-golden-"));
afterAll(() => rmSync(folder, { recursive: true }));

function file(name: string, topology: unknown, calls: readonly string[]): string {
  const path = join(folder, name);
  const head = JSON.stringify({ golden: 1, library: "nccl-2.28.9", topology });
  writeFileSync(path, [head, ...calls, ""].join("\n"));
  return path;
}

const call = (n: number, ap: string, coll: string, count: number): string =>
  `{"env":"plain","n":${n},"ap":"${ap}","coll":"${coll}","dt":"f32","op":"sum","count":${count},"cls":"norm","inplace":false,"offset":0,"h":""}`;

test("graphs of the first line are the machine of a recording over processes, and of its check", async () => {
  const channels = new Array<number[]>(4).fill([0]);
  const hosts = joinedText(channels, channels, 3, { typeintra: "LOC", speedinter: 50 });
  const path = file("graph.jsonl", { xml: hosts }, [
    call(4, "default", "allReduce", 300_000),
    call(4, "Tree-LL128", "allReduce", 5000),
    call(2, "default", "reduceScatter", 20_000),
  ]);
  const launched = join(folder, "graph-launched.jsonl");
  const one = await cli(`golden record ${path} --backend tcp --launch --out ${launched}`);
  expect(one).toMatchObject({ status: 0, out: "golden: 3 of 3 recorded\n", err: "" });
  const text = readFileSync(launched, "utf8");
  expect(text).toBe((await cli(`golden record ${path} --backend sim`)).out);
  const { status, out } = await cli(`golden check ${launched}`);
  expect({ status, out }).toMatchObject({ status: 0 });
  expect(out).toContain("3 calls of nccl-2.28.9 on the machine of its first line");
  expect(out).toContain("# plans: 3 of 3 as nccl-2.28.9 reported them");
  expect(text).toContain('"plan":{"algorithm":"Tree","protocol":"LL128"');
  // The machine decides the plan: on another one the same calls have others.
  const other = file("graph-other.jsonl", "h200-hosts", text.trimEnd().split("\n").slice(1));
  expect((await cli(`golden check ${other}`)).status).toBe(1);
}, 60_000);
