import { expect, test } from "vitest";
import { LineSplitter } from "../../../src/cli/launch/lines.ts";
import { longTest } from "../../support/long-test.ts";

const most = 2 ** 20;

/** The output for bytes that arrive in pieces of that size. */
function prefixed(bytes: Buffer, piece: number): Buffer {
  const splitter = new LineSplitter((line) => `> ${line}\n`);
  let text = "";
  for (let at = 0; at < bytes.length; at += piece) {
    text += splitter.push(bytes.subarray(at, at + piece));
  }
  return Buffer.from(text + splitter.end(), "latin1");
}

/** The lines without their prefix. */
function lines(bytes: Buffer, piece: number): Buffer[] {
  const found: Buffer[] = [];
  const out = prefixed(bytes, piece);
  for (let at = 0; at < out.length; ) {
    const end = out.indexOf("\n", at);
    expect(out.subarray(at, at + 2).toString()).toBe("> ");
    found.push(out.subarray(at + 2, end));
    at = end + 1;
  }
  return found;
}

test.each([1, 3, 7, 1000])("every byte is written behind the prefix, in pieces of %i", (piece) => {
  const every = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
  const shown = Buffer.from("> ");
  const [before, after] = [every.subarray(0, 11), every.subarray(11)];
  expect(prefixed(every, piece)).toEqual(
    Buffer.concat([shown, before, shown, after, Buffer.from("\n")]),
  );
});

test("empty lines are lines, and empty input has no line", () => {
  expect(prefixed(Buffer.from("\n\na"), 1).toString()).toBe("> \n> \n> a\n");
  expect(prefixed(Buffer.from("a\n"), 2).toString()).toBe("> a\n");
  expect(prefixed(Buffer.alloc(0), 1).length).toBe(0);
});

test.each([
  ["z", 1],
  ["ü", 1],
  ["€", 1],
  ["😀", 2],
])("a line of %s is cut between letters after 1,048,576 of UTF-16", (letter, units) => {
  const text = letter.repeat(most / units + 5);
  const found = lines(Buffer.from(`${text}\nend\n`), 100_001).map(String);
  expect(found).toEqual([letter.repeat(most / units), letter.repeat(5), "end"]);
});

longTest("a long line that arrives byte by byte is written whole", async () => {
  const text = "ü".repeat(700_000);
  expect(lines(Buffer.from(text), 1).map(String)).toEqual([text]);
});

test("bytes of invalid UTF-8 are cut, too, and every byte is written", () => {
  const bytes = Buffer.alloc(10 * most, 0x80);
  const found = lines(bytes, 65_536);
  expect(Buffer.concat(found).equals(bytes)).toBe(true);
  expect(Math.max(...found.map(({ length }) => length))).toBe(3 * most);
});
