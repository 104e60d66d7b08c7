import {
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { measuredCollectives } from "twinccl/bench";
import { afterAll, describe, expect, test } from "vitest";
import { BoundedTrace } from "../../../src/cli/trace.ts";
import { cli } from "./harness.ts";

const folder = mkdtempSync(join(tmpdir(), "twinccl-trace-"));
afterAll(() => rmSync(folder, { recursive: true }));

const names = measuredCollectives.map(({ collective }) => collective);

describe("a collective", () => {
  test.each(names)("%s in every format, on 1 and on 3 ranks", async (name) => {
    for (const ranks of [1, 3]) {
      const line = `trace ${name} --ranks ${ranks}${name === "barrier" ? "" : " --count 5"}`;
      const { status, out, err } = await cli(line);
      expect({ status, err }).toEqual({ status: 0, err: "" });
      expect(out).toMatch(/^(\d+ (post|recv|done) rank=\d .*\n)+$/);
      const chrome = JSON.parse((await cli(`${line} --format chrome`)).out);
      expect(chrome.traceEvents.length).toBeGreaterThan(0);
      const svg = (await cli(`${line} --format svg`)).out;
      expect(svg).toMatch(/^<svg [\s\S]*<\/svg>\n$/);
      expect(svg).toContain(`<title>${name}, ${ranks === 1 ? "1 rank" : "3 ranks"}</title>`);
    }
  });

  test("counts are elements as NCCL counts them", async () => {
    const { out } = await cli("trace all-gather --ranks 2 --count 6 --dtype float16");
    expect(out).toContain("allGather float16[6] Ring LL");
    expect(out).toContain("elements=6");
    expect((await cli("trace all-reduce --ranks 2 --count 6")).out).toContain("float32[6] Ring LL");
  });

  test("the named algorithm, root and link are used", async () => {
    const link = "--latency-ns 2.5 --gigabytes-per-second 4";
    const line = `trace broadcast --ranks 3 --count 8 --root 2 --algorithm chain ${link}`;
    const { out } = await cli(line);
    expect(out).toContain("broadcast float32[8] chain");
    expect(out).toMatch(/ recv rank=\d from=2 /);
    // 8 elements in chunks of 1: each takes 4 bytes / 4 GB/s = 1 ns of a port, after 2.5 ns.
    expect(out).toContain("3500 recv rank=0 from=2");
  });

  test.each([
    { call: "all-to-allv --count 8", lengths: [32, 31, 28, 26] },
    { call: "all-to-allv --count 512", lengths: [2048, 1955, 1790, 1655] },
    { call: "all-gatherv --count 1", lengths: [1, 1, 1, 1] },
    { call: "all-gatherv --count 8", lengths: [10, 9, 5, 8] },
    { call: "all-to-all --count 8", lengths: [8, 8, 8, 8] },
    { call: "all-reduce --count 8", lengths: [8, 8, 8, 8] },
  ])("$call: the count is of one block, on average where blocks differ", async (row) => {
    const { out } = await cli(`trace ${row.call} --ranks 4`);
    const posts = [...out.matchAll(/ post rank=(\d) .* float32\[(\d+)\]/g)];
    const lengths = posts.map(([, rank, length]) => [Number(rank), Number(length)]);
    expect(lengths).toEqual(row.lengths.map((length, rank) => [rank, length]));
  });

  test("the same command gives the same bytes", async () => {
    const line = "trace all-to-allv --ranks 4 --count 9 --seed 3 --format chrome";
    expect(await cli(line)).toEqual(await cli(line));
  });

  test("that is too large is refused without frames of the library", async () => {
    const { status, err } = await cli("trace all-reduce -n 2100 --count 1");
    expect(status).toBe(1);
    expect(err).toContain("UnsupportedError: allReduce by ring on 2100 ranks: a program of more");
    expect(err).not.toMatch(/^ {4}at /m);
  });

  test("--schedule changes no time of a collective", async () => {
    const line = "trace all-reduce --ranks 4 --count 9 --format chrome";
    const { out } = await cli(line);
    expect((await cli(`${line} --schedule virtual-time`)).out).toBe(out);
  });

  test("--out takes the document, standard output a line about it", async () => {
    const path = join(folder, "ring.svg");
    const line = "trace all-reduce --ranks 2 --count 4 --format svg";
    const { out } = await cli(`${line} --out ${path}`);
    expect(out).toBe(`${path}: 8 events, svg\n`);
    expect(readFileSync(path, "utf8")).toBe((await cli(line)).out);
  });
});

test("--out writes through a link to a file that does not exist yet", async () => {
  const [link, path] = [join(folder, "link.txt"), join(folder, "linked.txt")];
  symlinkSync(path, link);
  const { status } = await cli(`trace all-reduce --ranks 2 --count 4 --out ${link}`);
  expect(status).toBe(0);
  expect(readlinkSync(link)).toBe(path);
  expect(readFileSync(path, "utf8")).toMatch(/^0 post rank=0 /);
});

describe("a file", () => {
  function program(name: string, body: string): string {
    const path = join(folder, `${name}.mjs`);
    writeFileSync(path, `export default async (comm) => {${body}};\n`);
    return path;
  }

  test("is run on every rank, and all its calls are shown", async () => {
    const path = program("two", 'comm.work(50, "forward"); await comm.barrier();');
    const { status, out } = await cli(`trace ${path} --ranks 2`);
    expect(status).toBe(0);
    expect(out).toContain("0 work rank=0 until=50000 forward\n");
    expect(out).toContain("barrier dissemination");
  });

  test("is not overwritten by its trace", async () => {
    const path = program("kept", "await comm.barrier();");
    const text = readFileSync(path, "utf8");
    const { status, err } = await cli(`trace ${path} --ranks 2 --out ${path}`);
    expect(status).toBe(2);
    expect(err).toContain(`--out ${path}: is the same file as the program; name another one`);
    expect(readFileSync(path, "utf8")).toBe(text);
  });

  test("a late call is named, in every format", async () => {
    const late = "if (comm.rank === 0) await comm.barrier({ timeoutMs: 1 }).catch(() => {});";
    const path = program("overdue", late);
    const { out } = await cli(`trace ${path} --ranks 2`);
    const line = "fail rank=0 comm=trace call=0 error=ERR_COMM_TIMEOUT barrier";
    expect(out).toBe(`0 post rank=0 comm=trace call=0 barrier\n1000000000 ${line}\n`);
    const { traceEvents } = JSON.parse((await cli(`trace ${path} --ranks 2 --format chrome`)).out);
    expect(traceEvents.at(-1)).toMatchObject({ name: "barrier ERR_COMM_TIMEOUT", dur: 1000 });
    const svg = (await cli(`trace ${path} --ranks 2 --format svg`)).out;
    expect(svg).toContain("<title>barrier ERR_COMM_TIMEOUT: 0 to 1000 µs</title>");
  });

  test("that fails still leaves its trace", async () => {
    const path = program("late", "await comm.barrier(); if (comm.rank === 1) throw Error('late');");
    const { status, out, err } = await cli(`trace ${path} --ranks 2`);
    expect(status).toBe(1);
    expect(out).toContain("done rank=1");
    expect(err).toContain("late");
  });
});

describe("many messages", () => {
  const message = { ...{ world: 1, generation: 1, comm: "trace", call: 0 }, from: 0, to: 1 };
  const times = { sendStart: 0, sendEnd: 1, recvStart: 1, recvEnd: 2 };
  const traced = { ...message, ...times, channel: 0, elements: 1, step: 0 };

  test("are counted on a terminal", async () => {
    const { status, out, err } = await cli("trace all-reduce --ranks 48", { terminal: true });
    expect({ status, lines: out.split("\n").length }).toEqual({ status: 0, lines: 4609 });
    expect(err).toBe("\r\x1b[Ktrace: 4096 messages\r\x1b[K");
  });

  test("are refused beyond the limit", () => {
    const trace = new BoundedTrace(() => undefined);
    for (let at = 0; at < 2 ** 18; at++) trace.addMessage(traced);
    expect(trace.messages()).toHaveLength(2 ** 18);
    expect(() => trace.addMessage(traced)).toThrow(
      "trace: found more than 262,144 messages, the limit\nhint: trace fewer ranks or fewer calls",
    );
    expect(trace.messages()).toEqual([]);
  });
});
