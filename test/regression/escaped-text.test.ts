/** Names and file contents once were written into traces, messages and terminals as they stand. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createWorld, WorldError } from "twinccl";
import { sim, Trace } from "twinccl/sim";
import { afterAll, expect, test, vi } from "vitest";
import { cli } from "../unit/cli/harness.ts";

/** Clears the screen, sets the window's title, and begins a sequence in one character of C1. */
const hostile = "\u001b[2J\u001b]0;owned\u0007\u009b31m\u007f\b\r";
const controls = /[^\P{Cc}\t\n]/u;

/** The fields of a line of a trace, as a reader takes them: values in quotes are one. */
const fieldsOf = (line: string): string[] =>
  [...line.matchAll(/(?<= )(\w+)=("(?:[^"\\]|\\.)*"|\S+)/g)].map(([, name, value]) => {
    const text = value as string;
    return `${name}=${text.startsWith('"') ? (JSON.parse(text) as string) : text}`;
  });

test.each(["world call=7 x", 'a "b', "\u00a0call=7", 'plain"'])(
  "a name forged fields of the lines of a trace: %j",
  async (name) => {
    const trace = new Trace();
    const world = await createWorld({ backend: sim({ trace }), size: 2, name });
    await world.run(async (comm) => {
      await comm.barrier();
      const data = comm.alloc("int32", 1);
      await (comm.rank === 0
        ? comm.send({ send: data, peer: 1 })
        : comm.recv({ recv: data, peer: 0 }));
    });
    await world.close();
    const lines = trace.toText().trimEnd().split("\n");
    expect(lines.length).toBeGreaterThan(6);
    for (const line of lines) {
      const fields = fieldsOf(line);
      expect(fields.filter((field) => field.startsWith("comm="))).toEqual([`comm=${name}`]);
      expect(fields.filter((field) => field.startsWith("call="))).toHaveLength(1);
      expect(fields).not.toContain("call=7");
    }
  },
);

test("the code of an error forged fields of the line of its call", async () => {
  const trace = new Trace();
  const world = await createWorld({ backend: sim({ trace }), size: 1 });
  const thrown = Object.assign(new Error("broken"), { code: "A call=7" });
  const running = world.run(async (comm) => {
    comm.hooks.after(() => {
      throw thrown;
    });
    await comm.barrier();
  });
  await running.catch(() => undefined);
  await world.close();
  expect(trace.toText()).toContain(' call=0 error="A call=7" ');
});

test("a name that needs no quotes is printed unquoted", async () => {
  const trace = new Trace();
  const world = await createWorld({ backend: sim({ trace }), size: 1, name: "job/é=1" });
  await world.run((comm) => comm.barrier());
  await world.close();
  expect(trace.toText()).toMatch(/^0 post rank=0 comm=job\/é=1 call=0 barrier/m);
});

test("a name's escape sequences reached the terminal in messages and in warnings", async () => {
  const name = `w${hostile}`;
  const warnings: string[] = [];
  const warn = vi.spyOn(process, "emitWarning").mockImplementation((text) => {
    warnings.push(String(text));
  });
  try {
    const world = await createWorld({ backend: sim(), size: 2, name, stallMs: 1 });
    const running = world.run(async (comm) => {
      if (comm.rank === 0) await comm.barrier();
      // Longer than a stall takes.
      else await new Promise((resolve) => setTimeout(resolve, 60));
    });
    const error = (await running.catch((thrown: unknown) => thrown)) as WorldError;
    await world.close();
    expect(error).toBeInstanceOf(WorldError);
    for (const { message } of [error, ...error.failures.map((each) => each.error as Error)]) {
      expect(message).not.toMatch(controls);
      expect(message).toContain("\\u001b[2J\\u001b]0;owned\\u0007\\u009b31m\\u007f\\u0008\\u000d");
    }
    // The facts of an error are no text: they are as they were given.
    expect(error.failures[0]!.error).toMatchObject({ comm: name });
    expect(warnings.join("\n")).toContain("w\\u001b[2J");
    expect(warnings.join("\n")).not.toMatch(controls);
  } finally {
    warn.mockRestore();
  }
});

const folder = mkdtempSync(join(tmpdir(), "twinccl-escaped-"));
afterAll(() => rmSync(folder, { recursive: true }));

test.each([
  ["golden check", "records.jsonl", hostile],
  [
    "verify --programs --collective allReduce --algorithm",
    "algorithm.mjs",
    `throw new Error(${JSON.stringify(hostile)})`,
  ],
  ["run", "program.mjs", `throw new Error(${JSON.stringify(hostile)})`],
])("contents of a file reached the terminal in what %s prints", async (command, name, content) => {
  const path = join(folder, name);
  writeFileSync(path, content);
  const { status, out, err } = await cli(`${command} ${path}`);
  expect(status).not.toBe(0);
  expect(err).toMatch(/\\u001b/);
  expect(err + out).not.toMatch(controls);
});

test("arguments reached the terminal in messages about them", async () => {
  for (const line of [hostile, `trace ${hostile}`, `explain ${hostile}`, `golden ${hostile}`]) {
    const { err } = await cli(line);
    expect(err).toMatch(/\\u001b/);
    expect(err).not.toMatch(controls);
  }
});
