/** The algorithm that docs/algorithms.md shows is the one that its command lines name. */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

const read = (path: string): string =>
  readFileSync(new URL(`../../../${path}`, import.meta.url), "utf8");

test("examples/line.mjs equals the listing in docs/algorithms.md", () => {
  const [, object] = /^const line = (\{\n[\s\S]*?^\});/m.exec(read("examples/line.mjs"))!;
  expect(read("docs/algorithms.md")).toContain(`const line = ${object};`);
});
