/** docs/numerics.md and its tests name each other: no row without a test, no test without a row. */
import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

const page = readFileSync(new URL("../../../docs/numerics.md", import.meta.url), "utf8");

/** Cells of the tables' rows, by heading. */
function rowsUnder(heading: string): string[][] {
  const [, section = ""] = page.split(`\n## ${heading}\n`);
  const [body = ""] = section.split("\n## ");
  const lines = body.split("\n").filter((line) => line.startsWith("| "));
  return lines.slice(1).map((line) =>
    line
      .split("|")
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
}

const named = (cell: string | undefined): string =>
  /^`(.+)`$/.exec(cell ?? "")?.[1] ?? `no name: ${cell}`;

test("every row has its test, and every test its row", () => {
  const rows = ["Claimed", "Not claimed", "Bits of NaNs and zeros"].flatMap(rowsUnder);
  const folder = new URL("./", import.meta.url);
  const tests = readdirSync(folder)
    .filter((file) => file !== "contract.test.ts")
    .flatMap((file) => {
      const source = readFileSync(new URL(file, folder), "utf8");
      return [...source.matchAll(/^test\("([^"]+)"/gm)].map(([, name]) => name as string);
    });
  expect(rows.length).toBeGreaterThan(20);
  expect(rows.map((row) => named(row.at(-1))).sort()).toEqual(tests.sort());
});

test("every recorded file is there, with as many cases as the page says", () => {
  const rows = rowsUnder("Recorded results");
  const recorded = readdirSync(new URL("../../golden/", import.meta.url));
  expect(rows.map(([, , file]) => named(file)).sort()).toEqual(
    recorded.filter((file) => file.endsWith(".jsonl")).sort(),
  );
  for (const [, cases, file] of rows) {
    const path = new URL(`../../golden/${named(file)}`, import.meta.url);
    const lines = readFileSync(path, "utf8").trimEnd().split("\n");
    const calls = lines.filter((line) => !line.startsWith('{"golden"'));
    expect(calls).toHaveLength(Number(cases));
  }
});

test("README.md counts the cases of all recorded files", () => {
  const readme = readFileSync(new URL("../../../README.md", import.meta.url), "utf8");
  const counts = rowsUnder("Recorded results").map(([, cases]) => Number(cases));
  const sum = counts.reduce((total, count) => total + count, 0).toLocaleString("en");
  expect(readme).toContain(`${sum} recorded results of NCCL`);
});
