/** Command lines of scripts: each lists its options, and refuses anything else in one line, before it does anything. */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("../../../", import.meta.url));

function script(path: string, ...args: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [path, ...args], {
    cwd: root,
    encoding: "utf8",
    timeout: 60_000,
  });
  return { status, stdout, stderr };
}

const scripts = ["tools", "bench", "examples"].flatMap((folder) =>
  readdirSync(`${root}${folder}`)
    .filter((name) => name.endsWith(".mjs"))
    .map((name) => `${folder}/${name}`)
    .filter((path) => /from "\S*\/options\.mjs"/.test(readFileSync(root + path, "utf8"))),
);

test("scripts of package.json take options, but for those of builds and of other commands", () => {
  const commands = readFileSync(`${root}package.json`, "utf8").matchAll(
    /node (\S+\/[a-z-]+\.mjs)/g,
  );
  const without = Array.from(commands, ([, path = ""]) => path).filter(
    (path) => !scripts.includes(path),
  );
  expect([...new Set(without)].sort()).toEqual(
    ["build", "native", "ok", "test-webgpu", "twinccl"].map((name) => `tools/${name}.mjs`),
  );
});

describe.each(scripts)("%s", (path) => {
  test("lists its options with --help, and refuses others in one line", () => {
    const help = script(path, "--help");
    expect(help).toMatchObject({ status: 0, stderr: "" });
    expect(help.stdout).toMatch(/^\S+ \[options\].*\n\n\S.*\.\n\n( {2}--\S+ .*\n)+$/);
    expect(help.stdout).not.toMatch(/undefined|\[object/);
    const refused = script(path, "--nonsense");
    expect(refused).toMatchObject({ status: 2, stdout: "" });
    expect(refused.stderr).toMatch(/^\S+: unknown option '--nonsense'; see --help\n$/);
  }, 60_000);
});

test.each([
  ...["bench", "peers", "gpu", "tcp", "webgpu"].map((name) => `bench/${name}.mjs`),
  ...["golden-cases", "nan-bits", "verify-all", "verify-gpu", "verify-webgpu"].map(
    (name) => `tools/${name}.mjs`,
  ),
])(
  "%s refuses an --out in no folder before it measures",
  (path) => {
    const { status, stdout, stderr } = script(path, "--out", "no/such/folder.json");
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(stderr).toMatch(
      /--out: found "no\/such\/folder\.json", needs a file in a folder that is there; see --help\n$/,
    );
  },
  30_000,
);

test.each([
  ["examples/mesh.mjs", "--mesh", "1x1x1", "--steps", "100"],
  ["tools/verify-all.mjs", "--from", "2", "--to", "3", "--only", "barrier"],
])(
  "%s ends with status 0 where the pipe of its output is closed",
  async (...args) => {
    const child = spawn(process.execPath, args, { cwd: root, timeout: 60_000 });
    child.stdout.destroy();
    const [said, [status]] = await Promise.all([text(child.stderr), once(child, "close")]);
    expect({ status, said }).toEqual({ status: 0, said: "" });
  },
  60_000,
);

test("bench/gpu.mjs ends with one line where there is no GPU", () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, ["bench/gpu.mjs"], {
    cwd: root,
    encoding: "utf8",
    env: { ...process.env, PATH: "" },
  });
  expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
  expect(stderr).toBe("bench:gpu: needs a GPU, nvidia-smi lists none\n");
}, 30_000);

test.each([
  [
    ["--skip", "test", "--skip", "nothing"],
    /^ok: --skip: found "nothing", needs one of test, .*\n$/,
  ],
  [["--skp", "test"], /^ok: Unknown option '--skp'.*\n$/],
  [["test"], /^ok: Unexpected argument 'test'.*\n$/],
])(
  "tools/ok.mjs %j is refused in one line, before the first check",
  (args, message) => {
    // Without a path no check could begin.
    const { status, stdout, stderr } = spawnSync(process.execPath, ["tools/ok.mjs", ...args], {
      cwd: root,
      encoding: "utf8",
      env: { PATH: "" },
    });
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(stderr).toMatch(message);
  },
  60_000,
);

test("bench refuses a part of no file's name, with the names", () => {
  const { status, stdout, stderr } = script("bench/bench.mjs", "nothing");
  expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
  expect(stderr).toMatch(/^bench: no file matches; there are: call-time\.bench\.ts, /);
  expect(stderr).not.toContain("support/");
}, 60_000);

test("bench/peers.mjs refuses a part of no row's name, with the names", () => {
  const { status, stdout, stderr } = script("bench/peers.mjs", "--only", "nothing");
  expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
  expect(stderr).toMatch(/^bench:peers: --only: found "nothing", needs a part of one of these/);
  expect(stderr).toContain("\n  all-reduce, float32, 8 x 64 MiB\n");
}, 60_000);

test.each<[string[], RegExp]>([
  [["--steps"], /^train\.mjs: option '--steps <value>' argument missing/],
  [["--steps", "0"], /--steps: found "0", needs a whole number of at least 1/],
  [["--steps", "1e2"], /--steps: found "1e2"/],
  [
    ["--ranks", "1,,2"],
    /--ranks: found "1,,2", needs a whole number of at least 1, or several with ","/,
  ],
  [["--backend", "gpu"], /--backend: found "gpu", needs one of sim, nccl/],
  [["extra"], /unexpected argument 'extra'/],
])(
  "examples/train.mjs %s is refused in one line",
  (args, message) => {
    const { status, stdout, stderr } = script("examples/train.mjs", ...args);
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(stderr).toMatch(message);
    expect(stderr.trimEnd().split("\n")).toHaveLength(1);
  },
  30_000,
);

test("tools/verify-all.mjs takes numbers, and refuses an invalid range", () => {
  const found = script("tools/verify-all.mjs", "--from", "2", "--to", "3", "--only", "barrier");
  expect(found).toMatchObject({ status: 0 });
  expect(found.stdout).toMatch(/all +2\.\.3 ranks +2 +0 /);
  const refused = script("tools/verify-all.mjs", "--from", "4", "--to", "2");
  expect(refused).toMatchObject({
    status: 2,
    stderr: expect.stringMatching(/^verify:all: .*range of ranks\n$/),
  });
}, 60_000);
