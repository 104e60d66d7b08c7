import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, describe, expect, test, vi } from "vitest";
import { skippedWithout } from "../../support/skipped.ts";
import { cli } from "./harness.ts";

const commands = [
  "start",
  "bench",
  "run",
  "launch",
  "explain",
  "invariant",
  "predict",
  "calibrate",
  "trace",
  "verify",
  "golden",
  "doctor",
];

describe("help", () => {
  test.each(["--help", "-h", "help"])("%s lists exactly the commands there are", async (line) => {
    const { status, out, err } = await cli(line);
    expect({ status, err }).toEqual({ status: 0, err: "" });
    const listed = [...out.matchAll(/^ {2}(\w+) {2,}\S/gm)].map(([, name]) => name);
    expect(listed).toEqual(commands);
  });
  test.each(commands)("%s --help", async (command) => {
    const { status, out, err } = await cli(`${command} --help`);
    expect({ status, err }).toEqual({ status: 0, err: "" });
    expect(out).toContain(`Usage: twinccl ${command}`);
    expect(await cli(`${command} -h`)).toEqual({ status, out, err });
    expect(await cli(`help ${command}`)).toEqual({ status, out, err });
  });
  test.each(commands)("%s --help shows an example and the exit status", async (command) => {
    const { out } = await cli(`${command} --help`);
    const example = new RegExp(`^Examples?:\n  twinccl ${command}.*$`, "m");
    expect(out).toMatch(example);
    expect(out).toMatch(/^Exit status: 0/m);
  });
  test.each(["run", "bench", "verify", "invariant"])(
    "%s --help says that processes end it with the status of a rank",
    async (command) => {
      const { out } = await cli(`${command} --help`);
      expect(out).toMatch(
        /^Exit status: (.|\n)*that of the rank that failed first, as of launch\.$/m,
      );
    },
  );
  test("lines fit a terminal", async () => {
    for (const command of commands) {
      const { out } = await cli(`${command} --help`);
      const long = out.split("\n").filter((line) => line.length > 100 && !line.startsWith("COLL"));
      expect(long).toEqual([]);
    }
  });
});

test.each(["--version", "-v", "version"])("%s prints the package's version", async (line) => {
  const manifest = JSON.parse(readFileSync("package.json", "utf8")) as { version: string };
  expect(await cli(line)).toEqual({ status: 0, out: `${manifest.version}\n`, err: "" });
});

test("the version and the list of commands load no command, and no backend", () => {
  const loaded = new Set<string>();
  const load = (file: URL): void => {
    if (loaded.has(file.href)) return;
    loaded.add(file.href);
    const text = readFileSync(file, "utf8");
    for (const [, name = ""] of text.matchAll(/^import (?!type )[^;]*? from "(\.[^"]+)";/gm))
      load(new URL(name, file));
  };
  load(new URL("../../../src/cli/main.ts", import.meta.url));
  const names = [...loaded].map((href) => href.replace(/.*\/src\//, ""));
  expect(names).toContain("cli/cli.ts");
  expect(
    names.filter((name) => !/^(cli\/(main|cli|context|output)|api\/[\w-]+)\.ts$/.test(name)),
  ).toEqual([]);
});

describe("an unknown command", () => {
  test.each([
    ["verfy", "verify"],
    ["Bench", "bench"],
    ["lauch", "launch"],
    ["all_reduce_perf -b 8", "bench allReduce, with nccl-tests' options"],
    ["alltoall_perf", "bench allToAll, with nccl-tests' options"],
    ["all-reduce", "bench allReduce, with nccl-tests' options"],
    ["train.mjs", "run train.mjs, or launch -n N train.mjs"],
  ])("%s: use %s", async (line, meant) => {
    const { status, out, err } = await cli(line);
    expect({ status, out }).toEqual({ status: 2, out: "" });
    expect(err).toContain(`commands are start, `);
    expect(err).toContain(`\nhint: use twinccl ${meant}\n`);
  });
  test("bogus has no similar command", async () => {
    expect((await cli("bogus")).err).not.toContain("hint");
  });
});

describe("an unknown collective", () => {
  test.each([
    ["bench all_reduce_perf -b 8", "allReduce"],
    ["explain alltoall_perf_mpi", "allToAll"],
    ["predict all_redude", "allReduce"],
    ["trace all_gather_perf", "allGather"],
  ])("%s: write %s", async (line, meant) => {
    const { status, out, err } = await cli(line);
    expect({ status, out }).toEqual({ status: 2, out: "" });
    expect(err).toContain(`\nhint: write ${meant}\nsee twinccl `);
  });
  test.each(["bench bogus", "predict all_gatherv_perf"])("%s: no hint", async (line) => {
    const { status, err } = await cli(line);
    expect(status).toBe(2);
    expect(err).not.toContain("hint");
  });
});

test("help about an unknown command is refused", async () => {
  const { status, out, err } = await cli("help lauch");
  expect({ status, out }).toEqual({ status: 2, out: "" });
  expect(err).toMatch(/unknown command "lauch".*\nhint: use twinccl launch\n/);
});

test.each(["help run extra", "--help run extra", "--version extra", "version extra"])(
  "%s: a further word is refused",
  async (line) => {
    const { status, out, err } = await cli(line);
    expect({ status, out }).toEqual({ status: 2, out: "" });
    expect(err).toContain(': unexpected argument "extra"\nsee twinccl --help\n');
  },
);

test("an output path that cannot be written is refused before the work, and a file stays unchanged", async () => {
  const folder = mkdtempSync(join(tmpdir(), "twinccl-out-"));
  try {
    const long = join(folder, "x".repeat(300));
    const { status, out, err } = await cli(`bench all-reduce -e 8 --out ${long}`);
    expect({ status, out }).toEqual({ status: 2, out: "" });
    expect(err).toMatch(/^twinccl bench: --out .*: cannot be written: ENAMETOOLONG/);
    const kept = join(folder, "kept");
    writeFileSync(kept, "as it was");
    await cli(`bench all-reduce -e 8 --op bogus --out ${kept}`);
    await cli(`bench all-reduce -e 8 --op bogus --out ${join(folder, "fresh")}`);
    expect(readFileSync(kept, "utf8")).toBe("as it was");
    expect(readdirSync(folder)).toEqual(["kept"]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

const fullReason = skippedWithout(existsSync("/dev/full"), "the device /dev/full");

test.skipIf(fullReason !== "")(
  `a disk that is full after the work ends a command with status 1${fullReason}`,
  async () => {
    const { status, err } = await cli("trace all-reduce -n 2 --out /dev/full");
    expect({ status, err }).toEqual({
      status: 1,
      err: "twinccl trace: --out /dev/full: cannot be written: ENOSPC: no space left on device, write\n",
    });
  },
);

describe("wrong usage exits with 2 and names the wrong part on stderr", () => {
  test.each([
    ["", /^Usage: twinccl COMMAND/],
    [
      "bogus",
      /unknown command "bogus"; commands are start, bench, run, launch, explain, invariant, predict, calibrate, trace, verify, golden, doctor/,
    ],
    ["bench", /name a collective/],
    ["bench allShuffle", /"allShuffle" is no collective; collectives are allReduce, .*sendRecv/],
    ["bench all-reduce --nope", /unknown option '--nope'\nsee twinccl bench --help/],
    ["bench all-reduce extra", /unexpected argument "extra"/],
    ["bench all-reduce -b", /argument missing/],
    ["bench all-reduce -b 8X", /--minbytes: found "8X"/],
    ["bench all-reduce -b 16 -e 8", /--maxbytes: found 8, needs at least --minbytes, 16\n/],
    ["bench all-reduce -b 1 -e 3", /--maxbytes: found 3, needs bytes of at least 4/],
    ["bench all-gather -b 8 -e 8", /--maxbytes: found 8, needs bytes of at least 32/],
    [
      "bench all-reduce -b 1 -e 3 -g 2 --backend tcp",
      /^twinccl bench: --maxbytes: found 3, needs bytes of at least 4\nsee twinccl bench --help\n$/,
    ],
    ["bench all-reduce -n 3000000000", /found 3000000000, needs .* at most 2147483648/],
    ["launch -n 2 /tmp", /\/tmp is a folder; name a file in it/],
    [
      "launch -n 2 node train.mjs",
      /no file node; name the script alone, it is started with Node\.js/,
    ],
    ["bench all-reduce -f 1", /--stepfactor: found "1", needs a whole number of at least 2/],
    ["bench all-reduce -f 2 -i 8", /not both/],
    ["bench all-reduce -g 0", /--ranks: found "0"/],
    ["bench all-reduce -n x", /--iters: found "x"/],
    [
      "bench all-reduce -d int7",
      /--dtype: found "int7", needs one of int8, uint8.*; or char, half, float, double, f8e4m3, f8e5m2, /,
    ],
    ["bench all-reduce -o xor", /--op: found "xor", needs one of sum/],
    ["bench broadcast -r 8", /--root: found "8", needs all or a rank in 0..7/],
    ["bench all-to-all --spread 0.9", /--spread: allToAll has equal blocks/],
    ["bench send-recv --spread 0.9", /--spread: sendRecv has equal blocks/],
    ["bench all-reduce --spread 2", /--spread: found "2"/],
    ["bench all-reduce --algorithm magic", /--algorithm: found "magic", needs one of ring/],
    ["bench all-reduce --json --csv", /not both/],
    ["run", /name a file/],
    ["run no-such-file.mjs", /there is no file no-such-file.mjs/],
    ["run package.json/below.mjs", /there is no file package.json\/below.mjs/],
    ["explain", /name a collective; collectives are allReduce, reduce/],
    ["explain all-reduce --ranks -4", /--ranks: found "-4", needs a whole number in 1..131072/],
    ["explain all-reduce --ranks=-4", /--ranks: found "-4"/],
    ["explain all-reduce -n -4", /--ranks: found "-4"/],
    ["explain all-reduce --ranks 131073", /--ranks: found "131073"/],
    ["explain all-reduce --count 1KB", /--count: found "1KB", needs a number of elements such as/],
    [
      "explain all-reduce --like nccl-9",
      /--like: found "nccl-9", needs one of nccl-2.27, nccl-2.28/,
    ],
    ["explain all-reduce --like nccl-2.28 --ranks 9", /topology h200x8: found 9 ranks/],
    ["explain all-reduce --like nccl-2.28 --algorithm ring", /neither --algorithm nor --backend/],
    ["explain all-reduce --ranks 9 --nccl protocol=LL", /--nccl needs NCCL's plan: up to 8 ranks/],
    ["explain all-reduce --algorithm ring --against default", /--against needs NCCL's plan/],
    ["explain all-reduce --like nccl-2.28 --nccl proto=LL", /found "proto", needs settings out of/],
    ["explain all-reduce --like nccl-2.28 --nccl protocol=L", /needs one of LL, LL128, Simple/],
    ["explain all-reduce --like nccl-2.28 --nccl maxChannels=0", /needs a whole number above 0/],
    ["explain all-reduce --like nccl-2.28 --nccl maxChannels=65", /found 65, needs 1..64/],
    ["explain gather --like nccl-2.28 --against default", /known of allReduce.*, not of gather/],
    ["explain all-reduce --like nccl-2.28 --element 1024", /found 1024, needs 0..1023/],
    [
      "explain all-reduce --like nccl-2.28 --element 1 --rank 8",
      /--rank: found "8", needs a whole/,
    ],
    ["explain reduce --like nccl-2.28 --element 1 --rank 3", /only the root, rank 0, has an/],
    ["explain all-reduce --rank 1", /--rank goes with --element/],
    ["bench all-reduce --backend sim:like=nccl-9", /--backend: like: found "nccl-9"/],
    ["bench all-reduce --backend sim:protocol=LL", /topology and plan belong to like/],
    ["bench all-reduce --out /no-such-folder/x.json", /--out .*: there is no folder \/no-such-/],
    ["bench all-reduce --out /tmp", /--out \/tmp: is a folder/],
    [
      "trace all-reduce --out /no-such-folder/x.svg",
      /there is no folder \/no-such-folder; make it/,
    ],
    ["run package.json --trace /no-such-folder/x", /--trace .*: there is no folder/],
    ["run package.json --trace package.json/x", /--trace .*: there is no folder/],
    ["explain all-reduce --backend tcp", /tcp has one rank in each process, needs sim, which/],
    [
      "golden check test/golden/nccl-2.28.9-h200x8.jsonl --backend tcp",
      /--backend: tcp has one rank in each process, needs sim or nccl/,
    ],
    ["bench all-reduce --processes", /needs --backend nccl or tcp; simulated ranks share one/],
    ["explain broadcast --root 9", /--root: found 9/],
    ["explain sendRecv", /sendRecv has no plan to explain/],
    ["verify", /--against: name the other backend/],
    ["verify --programs file.mjs", /FILE or --programs, not both/],
    ["verify --against sim:sede=1", /--against: found "sede=1" in "sim:sede=1", needs seed=N/],
    [
      "verify --against sim:seed=x",
      /needs seed=N, schedule=NAME, like=LIBRARY, topology=MACHINE, executor=NAME, machine=FILE, a setting/,
    ],
    ["verify --against sim:seed=1,seed=2", /--against: seed is set twice/],
    ["run package.json --backend sim:executor=cpu,executor=wasm", /--backend: executor is set twi/],
    [
      "bench all-reduce --backend sim:allReduce=ring,all-reduce=linear",
      /--backend: allReduce is set twice/,
    ],
    [
      "bench all-reduce --backend sim:allReduce=linear --algorithm ring",
      /--backend: allReduce is set twice, by --algorithm too/,
    ],
    [
      "run package.json --seed 4 --backend sim:seed=3",
      /--backend: seed is set twice, by --seed too/,
    ],
    [
      "run package.json --schedule fair --backend sim:schedule=random",
      /--backend: schedule is set twice, by --schedule too/,
    ],
    [
      "run package.json --executor cpu --backend sim:executor=wasm",
      /--backend: executor is set twice, by --executor too/,
    ],
    ["bench all-reduce --seed 4 --backend sim:seed=3", /seed is set twice, by --seed too/],
    [
      "bench --calibration --executor cpu --backend sim:executor=wasm",
      /executor is set twice, by --executor too/,
    ],
    ["verify --against sim:schedule=slow", /schedule: found "slow", needs one of fair, random, v/],
    ["trace all-reduce --schedule slow", /--schedule: found "slow", needs one of fair, random, v/],
    ["run package.json --schedule fast", /--schedule: found "fast", needs one of fair, random, v/],
    ["verify --against sim:allReduce=magic", /found "magic", needs one of ring/],
    ["verify --against sim --counts 1,x", /--counts: found "x"/],
    ["verify --against sim --collective shuffle", /"shuffle" is no collective/],
    ["verify --against magic", /backends are sim, nccl, tcp/],
    ["verify no-such-file.mjs --against sim", /there is no file no-such-file.mjs/],
    ["trace", /name a collective or a file/],
    ["trace shuffle", /"shuffle" is neither a collective nor a file/],
    ["trace package.json --count 3", /--count is of a collective, not of a file/],
    ["trace broadcast --root 4", /--root: found 4, needs a rank in 0..3/],
    ["trace all-reduce --format png", /--format: found "png", needs one of text, chrome, svg/],
    ["trace all-reduce --latency-ns -1", /argument|needs a number in 0\.\./],
    ["trace all-reduce --gigabytes-per-second 0", /needs a number in 0\.000001\.\./],
    ["trace sendRecv --algorithm ring", /sendRecv has none to choose/],
    ["bench all-reduce -r 0", /--root: allReduce has none/],
    ["bench all-gather -o sum", /--op: allGather has none/],
    ["bench barrier -d half", /--dtype: barrier has none/],
    ["bench barrier -e 8", /--maxbytes: barrier has none/],
    ["bench all-reduce -d half,half", /--dtype: found "half" twice, needs it once/],
    ["bench all-reduce -i 0", /--stepbytes: found 0, needs at least 1/],
    ["predict barrier -b 8", /--minbytes: barrier has none/],
    ["predict all-reduce --algorithm ring,ring", /--algorithm: found "ring" twice, needs it once/],
    ["predict --job no-such-file.mjs", /--job: there is no file no-such-file.mjs/],
    ["verify --against sim --op max,max", /--op: found "max" twice, needs it once/],
    ["verify --against sim --counts 1,1", /--counts: found "1" twice, needs it once/],
    [
      "verify --against sim -n 131073",
      /--ranks: found "131073", needs a whole number in 1..131072/,
    ],
    ["verify --programs -n 131073", /--ranks: found "131073", needs a whole number in 1..131072/],
    [
      "explain all-to-all --nccl protocol=LL",
      /--nccl: NCCL's plan is known of .*, not of allToAll/,
    ],
    [
      "explain all-to-all --against default",
      /--against: NCCL's plan is known of .*, not of allToAll/,
    ],
    ["explain all-reduce --nccl NCCL_PROTO", /--nccl: NCCL_PROTO has no value/],
    ["run package.json --backend tcp:executor=cpu", /tcp: executor cannot be set from here/],
    ["run package.json --backend nccl:schedule=fair", /nccl: schedule cannot be set from here/],
    [
      "run package.json --backend sim:machine=no.json",
      /--backend: machine: there is no file no.json/,
    ],
    [
      "golden record no-such-file --backend tcp --launch --executor cpu",
      /--executor does not belong/,
    ],
    ["launch -n 2 package.json/below.mjs", /there is no file package.json\/below.mjs/],
    ["doctor now", /unexpected argument "now"/],
    ["start --fast", /unknown option '--fast'/],
  ])("twinccl %s", async (line, message) => {
    const { status, out, err } = await cli(line);
    expect({ status, out }).toEqual({ status: 2, out: "" });
    expect(err).toMatch(message);
    expect(err).not.toMatch(/^ {4}at /m);
  });
});

const folder = mkdtempSync(join(tmpdir(), "twinccl-cli-"));
const program = join(folder, "program.mjs");
writeFileSync(program, "export default (comm) => comm.rank;\n");
const nowhere = join(folder, "libcudart.so");
afterEach(() => vi.unstubAllEnvs());
afterAll(() => rmSync(folder, { recursive: true }));

test.each(["bench all-reduce", `run ${program}`, "explain all-reduce", "verify --against sim"])(
  "%s --backend nccl is refused, never replaced",
  async (line) => {
    vi.stubEnv("TWINCCL_CUDART_LIBRARY", nowhere);
    const { status, out, err } = await cli(`${line} --backend nccl`);
    expect({ status, out }).toEqual({ status: 2, out: "" });
    expect(err).toContain("BackendUnavailableError: libcudart was not found");
    expect(err).toContain(nowhere);
    expect((await cli(`${line} --backend magic`)).err).toContain("backends are sim, nccl, tcp");
  },
);

test("doctor lists present and missing parts", async () => {
  vi.stubEnv("TWINCCL_CUDART_LIBRARY", nowhere);
  const { status, out } = await cli("doctor");
  expect(status).toBe(0);
  expect(out).toContain(process.versions.node);
  expect(out).toMatch(/^wasm SIMD +(yes|no)$/m);
  expect(out).toMatch(/^backend sim +yes: needs nothing$/m);
  expect(out).toMatch(/^backend nccl +no: libcudart was not found$/m);
  expect(out).toMatch(/^backend tcp +yes: needs nothing; one rank in each process, for connect$/m);
});

test.each([
  ["explain all-reduce -r 1", "--root: allReduce has none"],
  ["trace all-reduce --root 1", "--root: allReduce has none"],
  ["trace broadcast --op sum", "--op: broadcast has none"],
  ["explain barrier --count 4", "--count: barrier has none"],
  ["predict all-reduce --latency-ns 1e300", '--latency-ns: found "1e300"'],
  ["predict all-reduce --overhead-ns 1e300", '--overhead-ns: found "1e300"'],
  ["predict all-reduce --topology ring --hop-latency-ns 1e300", '--hop-latency-ns: found "1e300"'],
  ["verify --against sim:allReduce=foo", '--against: allReduce: found "foo"'],
])("%s is refused by the given option", async (line, text) => {
  const { status, out, err } = await cli(line);
  expect({ status, out }).toEqual({ status: 2, out: "" });
  expect(err).toContain(text);
});
