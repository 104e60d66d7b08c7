/** The forms of a job's report: prefixes in colours, and events as JSON. */
import { PassThrough } from "node:stream";
import { WriteStream } from "node:tty";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { LineSplitter } from "../../../src/cli/launch/lines.ts";
import { JsonEvents, PrefixedOutput } from "../../../src/cli/launch/report.ts";

/** A stream that judges colours as a terminal does. */
function terminal(): PassThrough & { hasColors: () => boolean } {
  const { hasColors, getColorDepth } = WriteStream.prototype;
  return Object.assign(new PassThrough(), { hasColors, getColorDepth });
}

describe("the prefix", () => {
  beforeEach(() => {
    vi.stubEnv("TERM", "xterm-256color");
    for (const name of ["NO_COLOR", "FORCE_COLOR", "NODE_DISABLE_COLORS", "CI", "TMUX"]) {
      vi.stubEnv(name, undefined);
    }
  });
  afterEach(() => {
    vi.unstubAllEnvs();
  });

  const line = (rank: number, output: PassThrough = terminal()): string => {
    const report = new PrefixedOutput(undefined, { stdout: output, stderr: new PassThrough() });
    return report.formatOf(rank, "stdout")("text", true);
  };

  test("is coloured on a terminal, and the text is not", () => {
    expect(line(0)).toBe("\x1b[36m[0] \x1b[39mtext\n");
    expect(line(1)).toBe("\x1b[33m[1] \x1b[39mtext\n");
  });

  test("has ten colours in turn, none of them red, black or white", () => {
    const codes = Array.from({ length: 20 }, (_, rank) =>
      Number(line(rank).match(/\[(\d+)m/)?.[1]),
    );
    expect(new Set(codes.slice(0, 10)).size).toBe(10);
    expect(codes.slice(10)).toEqual(codes.slice(0, 10));
    for (const code of codes) expect([30, 31, 37, 90, 91, 97]).not.toContain(code);
  });

  test("is coloured by stream: standard error in a pipe is plain", () => {
    const outputs = { stdout: terminal(), stderr: new PassThrough() };
    const report = new PrefixedOutput(undefined, outputs);
    expect(report.formatOf(0, "stdout")("text", true)).toContain("\x1b");
    expect(report.formatOf(0, "stderr")("text", true)).toBe("[0] text\n");
  });

  test.each([
    ["NO_COLOR=1", { NO_COLOR: "1" }, false],
    ["FORCE_COLOR=0", { FORCE_COLOR: "0" }, false],
    ["TERM=dumb", { TERM: "dumb" }, false],
    ["FORCE_COLOR=1 before TERM=dumb", { FORCE_COLOR: "1", TERM: "dumb" }, true],
  ])("follows %s on a terminal", (_, variables, isColored) => {
    for (const [name, value] of Object.entries(variables)) vi.stubEnv(name, value);
    expect(line(0) !== "[0] text\n").toBe(isColored);
  });

  test("is plain in a pipe, also with FORCE_COLOR", () => {
    vi.stubEnv("FORCE_COLOR", "3");
    expect(line(0, new PassThrough())).toBe("[0] text\n");
  });

  test("that is empty has no colour", () => {
    const outputs = { stdout: terminal(), stderr: terminal() };
    const report = new PrefixedOutput(() => "", outputs);
    expect(report.formatOf(0, "stdout")("text", true)).toBe("text\n");
  });
});

/** The output events for bytes of one stream that arrive in these chunks. */
function eventsOf(chunks: readonly Uint8Array[]): Record<string, unknown>[] {
  const splitter = new LineSplitter(new JsonEvents(new PassThrough()).formatOf(3, "stderr"));
  const written = chunks.map((chunk) => splitter.push(Buffer.from(chunk))).join("");
  const lines = Buffer.from(written + splitter.end(), "latin1")
    .toString()
    .split("\n");
  expect(lines.pop()).toBe("");
  return lines.map((each) => JSON.parse(each) as Record<string, unknown>);
}

/** The bytes that output events hold. */
function bytesOf(events: readonly Record<string, unknown>[]): Buffer {
  return Buffer.concat(
    events.flatMap(({ text, base64, newline }) => [
      base64 === undefined ? Buffer.from(String(text)) : Buffer.from(String(base64), "base64"),
      Buffer.from(newline === true ? "\n" : ""),
    ]),
  );
}

describe("an output event", () => {
  test("has the rank, the stream, the text and a time", () => {
    const [event, ...others] = eventsOf([Buffer.from("grüße\n")]);
    expect(others).toEqual([]);
    expect(event).toEqual({
      ...{ event: "output", time_ms: expect.any(Number), rank: 3, stream: "stderr" },
      ...{ text: "grüße", newline: true },
    });
    expect(Object.keys(event ?? {}).slice(0, 2)).toEqual(["event", "time_ms"]);
  });

  test.each([1, 2, 3, 5])("joins letters that arrive in chunks of %i bytes", (size) => {
    const bytes = Buffer.from('€ 😀 "quoted" \\ \u2028\r\n\n\tend');
    const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) =>
      bytes.subarray(at * size, (at + 1) * size),
    );
    const events = eventsOf(chunks);
    expect(events.map(({ text, newline }) => [text, newline])).toEqual([
      ['€ 😀 "quoted" \\ \u2028\r', true],
      ["", true],
      ["\tend", false],
    ]);
  });

  test("of a line that is not UTF-8 has its bytes in base64", () => {
    const bytes = Buffer.from([0x41, 0xff, 0x0a, 0xed, 0xa0, 0x80, 0x0a, 0x42, 0x0a, 0xe2, 0x82]);
    const events = eventsOf([bytes]);
    expect(events.map(({ text, base64 }) => [text, base64])).toEqual([
      ["A\ufffd", "Qf8="],
      ["\ufffd\ufffd\ufffd", "7aCA"],
      ["B", undefined],
      ["\ufffd", "4oI="],
    ]);
    expect(bytesOf(events).equals(bytes)).toBe(true);
  });

  test("of a long line ends without a newline at 1,048,576 letters, and nothing is lost", () => {
    const bytes = Buffer.from(`${"x".repeat(2 ** 20)}y\n${"😀".repeat(2 ** 19)}z`);
    const events = eventsOf([bytes.subarray(0, 77), bytes.subarray(77)]);
    expect(events.map(({ text, newline }) => [String(text).length, newline])).toEqual([
      ...[
        [2 ** 20, false],
        [1, true],
        [2 ** 20, false],
        [1, false],
      ],
    ]);
    expect(bytesOf(events).equals(bytes)).toBe(true);
  });

  test("of every byte in one line is one line of JSON", () => {
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)).filter(
      (byte) => byte !== 0x0a,
    );
    const events = eventsOf([bytes]);
    expect(events).toHaveLength(1);
    expect(bytesOf(events).equals(Buffer.from(bytes))).toBe(true);
  });
});

test("events of one job have times that never fall, from its start", () => {
  const output = new PassThrough();
  const report = new JsonEvents(output);
  for (let rank = 0; rank < 100; rank++) {
    report.event({ event: "signal_sent", signal: "SIGTERM", ranks: [rank] });
  }
  // Node.js 26 reads one chunk at a time, earlier ones all.
  const chunks: Buffer[] = [];
  for (let chunk = output.read(); chunk !== null; chunk = output.read()) chunks.push(chunk);
  const lines = String(Buffer.concat(chunks)).split("\n").slice(0, -1);
  const times = lines.map((line) => (JSON.parse(line) as { time_ms: number }).time_ms);
  expect(times).toHaveLength(100);
  expect(times).toEqual([...times].sort((a, b) => a - b));
  expect(times[0]).toBeGreaterThanOrEqual(0);
  expect(times[99]).toBeLessThan(60_000);
});
