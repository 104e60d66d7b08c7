/** `twinccl predict --like`: NCCL's choices and their times beside the catalogue's algorithms. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import {
  choiceOf,
  type MachineProfile,
  machineProfiles,
  type TimedQuestion,
  timeOf,
} from "../../../src/algorithms/index.ts";
import { cli } from "./harness.ts";

const folder = mkdtempSync(join(tmpdir(), "twinccl-predict-library-"));
afterAll(() => rmSync(folder, { recursive: true }));

const h200x8 = machineProfiles["h200x8"] as MachineProfile;
const machine = "8 x NVIDIA H200, NVSwitch, NCCL 2.28.9";

/** The document of a command line. */
async function documentOf(line: string) {
  const { status, out, err } = await cli(`predict ${line} --json`);
  expect({ status, err }).toEqual({ status: 0, err: "" });
  return JSON.parse(out);
}

/** Nanoseconds of a question by the profile. */
function ns(question: TimedQuestion): number {
  return Math.round(1e6 * timeOf(h200x8, question).us) / 1000;
}

describe("predict --like", () => {
  test("a table has NCCL's choice and time beside the catalogue's", async () => {
    const { status, out, err } = await cli(
      "predict all-reduce --like nccl-2.28 -b 64K -e 256M -f 64 --algorithm ring,linear",
    );
    expect({ status, err }).toEqual({ status: 0, err: "" });
    expect(out).toMatchInlineSnapshot(`
      "# predicted for 8 x NVIDIA H200, NVSwitch, NCCL 2.28.9: allReduce, ranks 8, dtype float32
      # nccl: recorded, ordinary memory, back to back
      # catalogue: each message as a send of that machine, links of 6290 ns and 322 GB/s, crossbar
      #    size            choice    nccl    ring   linear   (us, * fastest)
         64 KiB        Ring LL x2   18.06   88.42    15.43*
          4 MiB    Ring LL128 x24   51.47*  110.9    194.9
        256 MiB   Ring Simple x24    1361*   1547    11684
      # from 3.43 MiB on Ring LL128 in place of Ring LL
      # from 34.7 MiB on Ring Simple in place of Ring LL128
      "
    `);
  });

  const { portRate } = h200x8.numbers.exchange;

  test.each([
    [
      "--like nccl-2.28 --latency-ns 5",
      `crossbar, latencyNs 5, overheadNs 0, gigabytesPerSecond ${portRate}\n`,
    ],
    [
      "--like nccl-2.28 --overhead-ns 50 --credits 2",
      `crossbar, latencyNs 6290, overheadNs 50, gigabytesPerSecond ${portRate}, credits 2\n`,
    ],
    [
      "--topology h200-hosts --gigabytes-per-second 10",
      "crossbar, latencyNs 1000, overheadNs 100, gigabytesPerSecond 10\n",
    ],
  ])("the head states the links of options: %s", async (line, links) => {
    const { out } = await cli(`predict all-reduce ${line} -e 8 --algorithm linear`);
    expect(out).toContain(`# catalogue: predicted, not measured: topology ${links}`);
  });

  test.each([
    ["allReduce", {}, ""],
    ["allReduce", { launch: "eager", memory: "ordinary" }, "--mode eager"],
    ["allReduce", { awaited: true }, "--latency"],
    ["allGather", { memory: "symmetric" }, "--nccl symmetric"],
    ["reduceScatter", { processes: "one" }, "--processes one"],
    ["allToAll", { memory: "ordinary" }, ""],
  ] as const)("%s has the times of the profile with %j", async (collective, mode, options) => {
    const { nccl, results } = await documentOf(
      `${collective} --like nccl-2.28 --ranks 4 -d bfloat16 -b 1K -e 64M -f 256 ${options}`,
    );
    expect(nccl.predictedFor).toBe(machine);
    for (const { count, bytes, nccl: found } of results) {
      const question = { collective, ranks: 4, count, dtype: "bfloat16", mode } as const;
      const choice = choiceOf(h200x8, question);
      expect(found).toMatchObject({
        choice: choice?.name,
        channels: choice?.channels,
        predictedNs: ns(question),
      });
      expect(bytes).toBe(collective === "allReduce" ? 2 * count : 8 * count);
    }
    expect(results).toHaveLength(3);
  });

  test("every choice has the time of a forced algorithm and protocol", async () => {
    const { results } = await documentOf("all-reduce --like nccl-2.28 -b 4M -e 4M");
    const [{ choices, nccl, fastest }] = results;
    expect(choices).toHaveLength(6);
    for (const { choice, predictedNs } of choices) {
      const [algorithm, protocol] = choice.split(" ");
      const call = { collective: "allReduce", ranks: 8, count: 2 ** 20, dtype: "float32" } as const;
      const mode = { memory: "ordinary" } as const;
      expect(predictedNs).toBe(ns({ ...call, forced: { algorithm, protocol }, mode }));
    }
    expect(choices).toContainEqual(nccl);
    expect(fastest).toBe("nccl");
  });

  test("a switch is the first size with another choice", async () => {
    const { nccl } = await documentOf("all-reduce --like nccl-2.28 -b 1K -e 256M -f 512");
    expect(nccl.switches.map(({ from, to }: { from: string; to: string }) => [from, to])).toEqual([
      ["Ring LL", "Ring LL128"],
      ["Ring LL128", "Ring Simple"],
    ]);
    for (const { bytes, from, to } of nccl.switches) {
      const nameAt = (size: number) =>
        choiceOf(h200x8, { collective: "allReduce", ranks: 8, count: size / 4, dtype: "float32" })
          ?.name;
      expect([nameAt(bytes - 4), nameAt(bytes)]).toEqual([from, to]);
    }
  });

  test("pinned settings change choice and channels, and their times are extrapolated", async () => {
    const line = "all-reduce --like nccl-2.28 -b 64M -e 64M";
    const [free] = (await documentOf(line)).results;
    const forced = (await documentOf(`${line} --nccl algorithm=Tree,protocol=LL`)).results[0];
    expect(forced.nccl).toMatchObject({ choice: "Tree LL" });
    expect(forced.nccl.extrapolated).toBeUndefined();
    expect(forced.choices).toContainEqual(forced.nccl);
    const byVariable = (await documentOf(`${line} --nccl NCCL_ALGO=tree,NCCL_PROTO=LL`)).results;
    expect(byVariable).toEqual([forced]);
    const few = (await documentOf(`${line} --nccl NCCL_MAX_NCHANNELS=4`)).results[0];
    expect(few.nccl).toMatchObject({ channels: 4 });
    expect(few.nccl.predictedNs).toBeGreaterThan(free.nccl.predictedNs);
    expect(few.nccl.extrapolated).toContain("channels");
    const { out } = await cli(`predict ${line} --nccl NCCL_MAX_NCHANNELS=4`);
    expect(out).toMatch(/^# ~ extrapolated: measured with NCCL's own channels/m);
    expect(out).toMatch(/Ring Simple x4 +~\d/);
  });

  test("a switch near a row's size is named by its exact bytes, in the table and the picture", async () => {
    const path = join(folder, "near.svg");
    const { out } = await cli(
      `predict all-reduce --nccl symmetric -b 16K -e 64K -f 2 --svg ${path}`,
    );
    expect(out).toMatch(/ 16 KiB +Symmetric LL /);
    expect(out).toContain("# from 16388 B on Symmetric LD in place of Symmetric LL");
    expect(readFileSync(path, "utf8")).toContain("Symmetric LD from 16388 B");
  });

  test("a size beyond the measured ones is marked", async () => {
    const { out } = await cli("predict broadcast --topology h200x8 -b 2G -e 2G --algorithm chain");
    expect(out).toMatch(/^# ~ extrapolated: .*measured with 8 to 536870912 bytes$/m);
    expect(out).toMatch(/ ~\d+/);
  });

  test("hosts have choices, and times by no name", async () => {
    const line = "all-reduce --topology h200-hosts --ranks 16 -b 1K -e 1M -f 1024";
    const { out } = await cli(`predict ${line} --algorithm ring`);
    expect(out).toContain("# nccl not predicted: no profile of h200-hosts with nccl-2.28");
    expect(out).toMatch(/ 1 KiB +Tree LL x1 +- /);
    const { nccl, results } = await documentOf(line);
    expect(nccl).toMatchObject({ predictedFor: null, mode: null, topology: "h200-hosts" });
    expect(results[0].nccl).toMatchObject({ choice: "Tree LL", predictedNs: null });
    expect(results[0].fastest).not.toBe("nccl");
  });

  test("a version that was not measured has choices alone", async () => {
    const { out } = await cli("predict all-reduce --like nccl-2.30 -b 1M -e 1M --algorithm ring");
    expect(out).toContain("# nccl not predicted: no profile of h200x8 with nccl-2.30");
  });

  test("--machine takes the profile of a file", async () => {
    const path = join(folder, "mine.json");
    const { numbers } = h200x8;
    const { exchange } = numbers;
    const slower = { ...exchange, portRate: exchange.portRate / 2 };
    const mine = { ...h200x8, machine: "mine", numbers: { ...numbers, exchange: slower } };
    writeFileSync(path, JSON.stringify(mine));
    const line = "all-to-all -b 64M -e 64M --algorithm pairwise";
    const [usual, own] = [
      await documentOf(`${line} --like nccl-2.28`),
      await documentOf(`${line} --machine ${path}`),
    ];
    expect(own.nccl.predictedFor).toBe("mine, NCCL 2.28.9");
    expect(own.gigabytesPerSecond).toBe(slower.portRate);
    expect(own.results[0].nccl.predictedNs).toBeGreaterThan(usual.results[0].nccl.predictedNs);
  });

  test("the links of the catalogue are those of the machine's messages", async () => {
    const { latencyNs, overheadNs, gigabytesPerSecond } = await documentOf(
      "all-gather --like nccl-2.28 -b 1M -e 1M",
    );
    const { startUs, portRate } = h200x8.numbers.exchange;
    expect({ latencyNs, overheadNs, gigabytesPerSecond }).toEqual({
      latencyNs: 1000 * startUs,
      overheadNs: 0,
      gigabytesPerSecond: portRate,
    });
  });

  test.each([
    ["--like nccl-1.0", '--like: found "nccl-1.0"'],
    ["--like nccl-2.28 --topology fat-tree", '--topology: found "fat-tree", needs a machine'],
    ["--like nccl-2.28 --ranks 9", "topology h200x8: found 9 ranks, has 8 GPUs"],
    ["--like nccl-2.28 -b 1 -e 2", "--maxbytes: found 2, needs bytes of at least 4"],
    ["--topology dgx", '--topology: found "dgx"'],
    ["--machine nowhere.json", "there is no file nowhere.json"],
    ["--like nccl-2.28 --mode async", '--mode: found "async"'],
    ["--processes many", '--processes: found "many"'],
    [
      "--topology h200-hosts --mode async",
      "--mode is of a machine's times: no profile of h200-hosts",
    ],
    ["--like nccl-2.30 --latency", "--latency is of a machine's times: no profile of h200x8 with"],
    ["--nccl foo=1", '--nccl: found "foo"'],
    ["--contents", "--contents goes with --job"],
    ["--svg /nowhere/x.svg", "there is no folder /nowhere"],
  ])("refuses %s", async (options, why) => {
    const { status, out, err } = await cli(`predict all-reduce ${options}`);
    expect({ status, out }).toEqual({ status: 2, out: "" });
    expect(err).toContain(why);
  });

  test("two outputs are not written into one file", async () => {
    const path = join(folder, "both.svg");
    const { status, out, err } = await cli(
      `predict all-reduce --svg ${path} --out ${folder}/./both.svg -b 8 -e 8`,
    );
    expect({ status, out }).toEqual({ status: 2, out: "" });
    expect(err).toContain(`--svg ${path}: is the same file as --out; name another one`);
  });

  test("the profile of --machine is not overwritten", async () => {
    const path = join(folder, "kept.json");
    const text = JSON.stringify(h200x8);
    writeFileSync(path, text);
    const { status } = await cli(`predict all-reduce --machine ${path} --out ${path} -b 8 -e 8`);
    expect(status).toBe(2);
    expect(readFileSync(path, "utf8")).toBe(text);
  });

  test("a damaged profile is refused by its field", async () => {
    const path = join(folder, "damaged.json");
    writeFileSync(path, JSON.stringify({ ...h200x8, numbers: { ...h200x8.numbers, host: {} } }));
    const { status, err } = await cli(`predict all-reduce --machine ${path}`);
    expect(status).toBe(2);
    expect(err).toContain(path);
    expect(err).toContain("numbers.host");
  });
});

describe("predict --svg", () => {
  async function pictureOf(line: string): Promise<string> {
    const path = join(folder, "picture.svg");
    const { status, err } = await cli(`predict ${line} --svg ${path}`);
    expect({ status, err }).toEqual({ status: 0, err: "" });
    return readFileSync(path, "utf8");
  }

  test("has a line for each choice, NCCL's in bold, and its switches by name", async () => {
    const svg = await pictureOf("all-reduce --like nccl-2.28 -b 1K -e 256M -f 8");
    expect(svg.match(/class="line" stroke="#[0-9a-f]+" points/g)).toHaveLength(6);
    const bold = [...svg.matchAll(/class="taken"[^>]* points="[^"]*"><title>([^<]*)/g)];
    expect(bold.map(([, name]) => name)).toEqual(["Ring LL", "Ring LL128", "Ring Simple"]);
    expect([...svg.matchAll(/>([^<>]* from [^<>]*)</g)].map(([, label]) => label)).toEqual([
      "Ring LL128 from 3.43 MiB",
      "Ring Simple from 34.7 MiB",
    ]);
    expect(svg).toContain(`${machine}; recorded, ordinary memory, back to back`);
  });

  test("bold lines of NCCL's choice meet where it switches", async () => {
    const svg = await pictureOf("all-gather --nccl symmetric -n 4 -b 1K -e 64M -f 4");
    const [low = "", direct = ""] = [...svg.matchAll(/class="taken"[^>]* points="([^"]*)"/g)].map(
      ([, points]) => points,
    );
    expect(low.split(" ").at(-1)?.split(",")[0]).toBe(direct.split(" ")[0]?.split(",")[0]);
  });

  test("without a library has a line for each algorithm, and the fastest in bold", async () => {
    const svg = await pictureOf("all-reduce -n 64 -b 1K -e 64M -f 4");
    expect(svg).toContain("halving-doubling from 1 MiB");
    expect(svg).toContain("bold: the fastest");
    expect(svg).not.toMatch(/NaN|Infinity|undefined/);
  });

  test.each([
    { sizes: "-b 3K -e 3K", labels: ["3 KiB"] },
    { sizes: "-b 5K -e 7K -i 1K", labels: ["5 KiB", "7 KiB"] },
    { sizes: "-b 3K -e 5K -i 1K", labels: ["3 KiB", "5 KiB"] },
    { sizes: "-b 3K -e 9K -i 1K", labels: ["4 KiB", "8 KiB"] },
  ])("has sizes and times on its axes, also of a narrow range: $sizes", async (row) => {
    const svg = await pictureOf(`all-reduce -n 4 --algorithm ring ${row.sizes}`);
    const sizes = [...svg.matchAll(/class="x" x="([^"]*)" y="522">([^<]*)/g)];
    expect(sizes.map(([, , label]) => label)).toEqual(row.labels);
    const places = sizes.map(([, x]) => Number(x));
    expect(places.filter((x) => x < 72 || x > 764)).toEqual([]);
    const times = [...svg.matchAll(/class="y" x="64" y="([^"]*)">[\d.]+ µs/g)];
    expect(times.length).toBeGreaterThan(1);
    expect(times.filter(([, y]) => Number(y) < 96 || Number(y) > 510)).toEqual([]);
  });

  test("of a single size, and of a barrier, is drawn too", async () => {
    for (const line of ["all-reduce --like nccl-2.28 -b 1M -e 1M", "barrier --like nccl-2.28"]) {
      expect(await pictureOf(line)).not.toMatch(/NaN|Infinity|undefined/);
    }
  });
});
