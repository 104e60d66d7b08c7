/** `twinccl predict --job`: a program's steps, its communication behind work, and its calls, in virtual time. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { type MachineProfile, machineProfiles, timeOf } from "../../../src/algorithms/index.ts";
import type { CallRow } from "../../../src/cli/predict/job-times.ts";
import { cli } from "./harness.ts";

const folder = mkdtempSync(join(tmpdir(), "twinccl-predict-job-"));
afterAll(() => rmSync(folder, { recursive: true }));

let files = 0;

/** A file with the program of a rank. */
function fileOf(body: string): string {
  const path = join(folder, `program${files++}.mjs`);
  writeFileSync(path, `export default async (comm) => {\n${body}\n};\n`);
  return path;
}

/** The document of a program. */
async function documentOf(body: string, options = "") {
  const { status, out, err } = await cli(`predict --job ${fileOf(body)} --json ${options}`);
  expect({ status, err }).toEqual({ status: 0, err: "" });
  return JSON.parse(out);
}

const h200x8 = machineProfiles["h200x8"] as MachineProfile;
const call = { collective: "allReduce", ranks: 4, count: 2 ** 20, dtype: "float32" } as const;
const callNs = Math.round(1e6 * timeOf(h200x8, call).us) / 1000;
const buffer = `const send = comm.alloc("float32", ${call.count});`;
const allReduce = `comm.allReduce({ send, op: "sum" })`;

/** Links on which an element that is sent takes a microsecond, and nothing else any time. */
const links = "--latency-ns 0 --gigabytes-per-second 0.004";

describe("predict --job", () => {
  test("a line on the terminal shows the progress, and is erased at the end", async () => {
    const path = fileOf(`${buffer}
      for (let call = 0; call < 20; call++) await ${allReduce};`);
    const { err } = await cli(`predict --job ${path} -n 4 --json`, { terminal: true });
    expect(err).toContain(`running ${path} on 4 ranks`);
    expect(err).toContain(`running ${path} on 4 ranks: 160 events`);
    expect(err.endsWith("\r\x1b[K")).toBe(true);
    expect((await cli(`predict --job ${path} -n 4 --json`)).err).toBe("");
  });

  test("hidden communication, the rest, work and idle time are apart", async () => {
    const body = `${buffer}
      comm.work(1_000_000, "forward");
      const sum = ${allReduce};
      comm.work(20_000, "backward");
      await sum;`;
    const found = await documentOf(body, "-n 4");
    expect(found).toMatchObject({ ranks: 4, contents: false, like: "nccl-2.28", stepsNs: [] });
    expect(found.predictedFor).toBe("8 x NVIDIA H200, NVSwitch, NCCL 2.28.9");
    const totalNs = 1_000_000 + callNs;
    expect(found.stepNs).toBeCloseTo(totalNs, 3);
    for (const each of found.perRank) {
      expect(each.totalNs).toBeCloseTo(totalNs, 3);
      expect(each).toMatchObject({ workNs: 1_020_000, hiddenNs: 20_000, idleNs: 0 });
      expect(each.exposedNs).toBeCloseTo(callNs - 20_000, 3);
      expect(each.communicationShare).toBeCloseTo((callNs - 20_000) / totalNs, 9);
      expect(each.hiddenShare).toBeCloseTo(20_000 / callNs, 9);
      // A ring sends 2 · 3/4 of the buffer.
      expect(each.sentBytes).toBe(1.5 * 4 * call.count);
    }
    expect(found.calls).toEqual([
      expect.objectContaining({
        ...{ collective: "allReduce", dtype: "float32", ranks: 4, bytes: 4 * call.count },
        ...{ calls: 1, waitingNs: 0, movingNs: expect.closeTo(callNs, 3) },
      }),
    ]);
  });

  test("time before the first mark of a step is left out of all steps", async () => {
    const body = `${buffer}
      comm.work(500, "setup");
      await comm.barrier();
      for (const ns of [1000, 3000]) {
        comm.work(0, "step");
        comm.work(ns);
        await ${allReduce};
      }`;
    const found = await documentOf(body, "-n 4");
    expect(found.stepsNs).toEqual([
      expect.closeTo(1000 + callNs, 3),
      expect.closeTo(3000 + callNs, 3),
    ]);
    expect(found.stepNs).toBeCloseTo(2000 + callNs, 3);
    expect(found.beforeNs).toBeGreaterThan(500);
    expect(found.totalNs).toBeCloseTo(found.beforeNs + 2 * found.stepNs, 3);
    expect(found.perRank[0].workNs).toBe(4000);
    expect(found.calls.map(({ collective }: { collective: string }) => collective)).toEqual([
      "allReduce",
    ]);
  });

  test("marks on some ranks alone make no steps", async () => {
    const body = `if (comm.rank === 0) comm.work(0, "step"); await comm.barrier();`;
    const found = await documentOf(body, "-n 4");
    expect(found).toMatchObject({ stepsNs: [], beforeNs: 0 });
    expect(found.stepNs).toBe(found.totalNs);
  });

  test("waiting for the last rank is apart from the call, and counts as communication", async () => {
    const body = `${buffer} comm.work(1000 * comm.rank); await ${allReduce};`;
    const { calls, perRank } = await documentOf(body, "-n 4");
    expect(calls[0].movingNs).toBeCloseTo(callNs, 3);
    expect(calls[0].waitingNs).toBe(1500);
    expect(perRank[0].exposedNs).toBeCloseTo(3000 + callNs, 3);
    expect(perRank[3].exposedNs).toBeCloseTo(callNs, 3);
  });

  test("calls of splits, recordings and messages are rows", async () => {
    const body = `
      const half = await comm.split({ color: comm.rank % 2 });
      const send = comm.alloc("uint8", 4000);
      const recv = comm.alloc("uint8", 4000);
      await half.broadcast(half.rank === 0 ? { send, root: 0 } : { recv, root: 0 });
      const graph = await comm.capture(() => {
        comm.allReduce({ send, op: "sum" });
        comm.allReduce({ send, op: "sum" });
      });
      await graph.replay();
      await graph.replay();
      const peer = comm.rank ^ 1;
      await comm.group(() => { comm.send({ send, peer }); comm.recv({ recv, peer }); });`;
    const { calls, perRank } = await documentOf(body, `-n 4 ${links}`);
    const rows = calls.map((row: { collective: string; ranks: number; calls: number }) => [
      row.collective,
      row.ranks,
      row.calls,
    ]);
    expect(rows.sort()).toEqual([
      ["allReduce", 4, 4],
      ["broadcast", 2, 2],
      ["recv", 4, 4],
      ["send", 4, 4],
    ]);
    const send = calls.find(({ collective }: { collective: string }) => collective === "send");
    expect(send).toMatchObject({ bytes: 4000, movingNs: 4 * 1_000_000, predictedFor: null });
    // A broadcast of 4000 bytes, four sums that send 1.5 times as much, and a message.
    for (const { sentBytes } of perRank) expect(sentBytes).toBe(4000 + 4 * 6000 + 4000);
  });

  test("a way of calling changes the times", async () => {
    const body = `const send = comm.alloc("float32", 256); await ${allReduce};`;
    const [usual, awaited] = [
      await documentOf(body, "-n 4"),
      await documentOf(body, "-n 4 --latency"),
    ];
    const mode = { awaited: true };
    const { us } = timeOf(h200x8, { ...call, count: 256, mode });
    expect(awaited.mode).toMatchObject(mode);
    expect(awaited.stepNs).toBeCloseTo(1000 * us, 2);
    expect(awaited.stepNs).toBeGreaterThan(usual.stepNs);
  });

  test.each(["-n 2", "-n 2 --latency-ns 1000"])(
    "a message that waits for its other end waits, and moves from then on: %s",
    async (options) => {
      const bodyOf = (late: number): string => `const buffer = comm.alloc("float32", 1024);
        if (comm.rank === ${late}) comm.work(1_000_000);
        if (comm.rank === 0) await comm.send({ send: buffer, peer: 1 });
        else await comm.recv({ recv: buffer, peer: 0 });`;
      const rowsOf = async (late: number) => {
        const { calls } = await documentOf(bodyOf(late), options);
        const row = (name: string) => calls.find((each: CallRow) => each.collective === name);
        return { sent: row("send"), received: row("recv") };
      };
      const early = await rowsOf(0);
      expect(early.received).toMatchObject({ waitingNs: 1_000_000 });
      expect(early.received.movingNs).toBeLessThan(10_000);
      expect(early.sent.waitingNs).toBe(0);
      const late = await rowsOf(1);
      expect(late.sent).toMatchObject({ waitingNs: 1_000_000 });
      expect(late.sent.movingNs).toBeLessThan(10_000);
      expect(late.received.waitingNs).toBe(0);
    },
  );

  test("messages are timed on the machine, by name", async () => {
    const body = `const send = comm.alloc("float32", 1024);
      await comm.sendRecv({ send, recv: comm.alloc("float32", 1024), to: 1 - comm.rank, from: 1 - comm.rank });`;
    const { predictedFor, calls } = await documentOf(body, "-n 2");
    expect(calls).toEqual([
      expect.objectContaining({ collective: "recv", predictedFor }),
      expect.objectContaining({ collective: "send", predictedFor }),
    ]);
    const { out } = await cli(`predict --job ${fileOf(body)} -n 2`);
    expect(out).toContain("# ~ extrapolated: no sendRecv was measured");
    expect(out).not.toContain("on links");
  });

  test("worlds that no machine has are timed on links, by name", async () => {
    const body = `${buffer} await ${allReduce};`;
    const found = await documentOf(body, "-n 16");
    expect(found).toMatchObject({ like: null, predictedFor: "links of 1000 ns and 400 GB/s" });
    const { out } = await cli(
      `predict --job ${fileOf(body)} -n 16 --like nccl-2.28 --topology h200-hosts`,
    );
    expect(out).toMatch(
      /^# predicted for links of 1000 ns and 400 GB\/s: .*16 ranks\n# not predicted: no profile of h200-hosts/,
    );
  });

  test("the tables join ranks with equal times", async () => {
    const path = fileOf(`${buffer} comm.work(comm.rank === 2 ? 5000 : 0); await ${allReduce};`);
    const { out } = await cli(`predict --job ${path} -n 4`);
    const lines = out.split("\n");
    expect(lines[2]).toMatch(
      /^step {2}\d+\.\d+ µs {2}\(the whole program; comm\.work\(0, "step"\)/,
    );
    expect(lines.filter((line) => /^\d/.test(line)).map((line) => line.split(" ")[0])).toEqual([
      "0..1",
      "2",
      "3",
    ]);
    expect(out).toMatch(/^allReduce +float32 +4 MiB +4 +1 +\d+\.\d+ µs +\d+\.\d+ µs +3\.75 µs$/m);
  });

  test("extrapolated calls are marked", async () => {
    const { out } = await cli(`predict --job ${fileOf("await comm.barrier();")} -n 4`);
    expect(out).toContain("# ~ extrapolated: ");
    expect(out).toMatch(/^barrier .* ~\d/m);
  });

  test("--svg draws work and calls, --trace writes them, --out the document", async () => {
    const path = fileOf(`${buffer} comm.work(0, "step"); comm.work(50_000, "forward 0");
      const sum = ${allReduce}; comm.work(60_000, "backward 0"); await sum;`);
    const [svg, json, out] = ["step.svg", "trace.json", "doc.json"].map((n) => join(folder, n));
    const line = `predict --job ${path} -n 2 --svg ${svg} --trace ${json} --out ${out}`;
    expect((await cli(line)).status).toBe(0);
    const picture = readFileSync(svg!, "utf8");
    expect(picture.match(/<rect class="calls" x="[^"]*" y="\d+" width/g)).toHaveLength(2 + 1);
    expect(picture.match(/class="work kind1"/g)).toHaveLength(2 + 1);
    expect(picture.match(/class="mark"/g)).toHaveLength(2);
    expect(picture).toContain(">backward 0</text>");
    const { traceEvents } = JSON.parse(readFileSync(json!, "utf8"));
    const names = traceEvents.filter(({ ph }: { ph: string }) => ph === "X");
    expect(names).toHaveLength(8);
    expect(readFileSync(out!, "utf8")).toBe((await cli(`predict --job ${path} -n 2 --json`)).out);
  });

  test("a program that reads contents fails by name, and runs with --contents", async () => {
    const path = fileOf(`${buffer} await ${allReduce}; return send.toHost();`);
    const { status, out, err } = await cli(`predict --job ${path} -n 2`);
    expect({ status, out }).toEqual({ status: 1, out: "" });
    expect(err).toMatch(/UnsupportedError: toHost: .*\nhint: .*predict --job takes --contents/);
    const arrays = fileOf(`await comm.allReduce({ send: new Float32Array(8), op: "sum" });`);
    const refused = (await cli(`predict --job ${arrays} -n 2`)).err;
    expect(refused).toMatch(/found a TypedArray[\s\S]*\nhint: .*predict --job takes --contents/);
    for (const each of [path, arrays]) {
      expect((await cli(`predict --job ${each} -n 2 --contents`)).status).toBe(0);
    }
  });

  test.each([
    ["predict --job nowhere.mjs", "there is no file nowhere.mjs"],
    ["predict all-reduce --job x.mjs", '--job x.mjs: found "all-reduce" too'],
    ["predict --job x.mjs --root 1", "--root is of a collective, not of --job"],
    ["predict --job x.mjs -b 8", "--minbytes is of a collective, not of --job"],
    ["predict --job x.mjs --nccl symmetric", "--nccl: symmetric is of the program's buffers"],
    [
      "predict --job x.mjs -n 16 --topology torus",
      '--topology: found "torus", --job needs a machine',
    ],
    ["predict --job x.mjs --machine nowhere.json", "there is no file nowhere.json"],
    ["predict --job x.mjs --latency-ns 5 --mode eager", "--mode is of a machine's times"],
    ["predict --job x.mjs --latency-ns 5 --latency", "--latency is of a machine's times"],
    ["predict --job x.mjs --gigabytes-per-second 5 --processes one", "--processes is of a machine"],
    ["predict --job x.mjs --topology h200-hosts --latency", "--latency is of a machine's times"],
    ["predict --trace x.json all-reduce", "--trace goes with --job"],
  ])("%s is refused", async (line, why) => {
    const { status, out, err } = await cli(line);
    expect({ status, out }).toEqual({ status: 2, out: "" });
    expect(err).toContain(why);
  });

  test("a failing rank is an error of the program", async () => {
    const { status, err } = await cli(
      `predict --job ${fileOf(`if (comm.rank === 1) throw new Error("no data");`)} -n 2`,
    );
    expect(status).toBe(1);
    expect(err).toContain("no data");
  });
});

describe("docs/predict.md", () => {
  const docs = new URL("../../../docs/", import.meta.url);

  test("has pictures that its commands draw", async () => {
    const page = readFileSync(new URL("predict.md", docs), "utf8");
    const commands = [...page.matchAll(/predict ([^\n]*) --svg docs\/(images\/\S+\.svg)/g)];
    expect(commands.map(([, , name]) => name)).toEqual([
      "images/all-reduce-by-size.svg",
      "images/step-overlap.svg",
      "images/step-after.svg",
    ]);
    for (const [, line, name] of commands) {
      expect(page).toContain(`](${name})`);
      const path = join(folder, "drawn.svg");
      expect((await cli(`predict ${line} --svg ${path}`)).status).toBe(0);
      expect(readFileSync(path, "utf8")).toBe(readFileSync(new URL(name!, docs), "utf8"));
    }
  });
});
