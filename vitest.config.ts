/**
 * The tests: the areas of the code, each of which runs by its name, and projects that run by modes of their names.
 *
 * `vitest run` proves every claim in two minutes on two cores; `--mode all` adds the files `*.long.test.ts` and draws all cases of
 * properties; `--mode rest` runs what that adds, without WebGPU. `--project AREA` runs one area. Tests that need a machine of their own, or minutes, are modes.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { defineConfig, type ViteUserConfig } from "vitest/config";
import { builtSource } from "./tools/built-source.ts";
import { sourceEntries } from "./tools/source-entries.ts";

type Project = NonNullable<NonNullable<ViteUserConfig["test"]>["projects"]>[number];

const globs = (folders: readonly string[]): string[] =>
  folders.map((folder) => (folder.endsWith(".test.ts") ? folder : `${folder}/**/*.test.ts`));

/** Folders of the NCCL backend's tests, and with `*` the files beside them. */
const nccl = (...folders: readonly string[]): string[] =>
  folders.map((name) => `test/unit/backends/nccl/${name === "*" ? "*.test.ts" : name}`);

/** Folders by area. */
const areas: Readonly<Record<string, readonly string[]>> = {
  api: ["test/unit/api", "test/unit/misuse", "test/unit/numerics"],
  algorithms: ["test/unit/algorithms", "test/unit/catalogue.test.ts"],
  sim: ["test/unit/backends/sim"],
  nccl: nccl("*", "calls", "device", "discovery", "job", "process", "sys"),
  tcp: ["test/unit/backends/tcp"],
  job: ["test/unit/job", "test/unit/launched-ranks"],
  parallel: ["test/unit/parallel"],
  tools: [
    "test/unit/bench",
    "test/unit/cli",
    "test/unit/examples",
    "test/unit/golden",
    "test/unit/testing",
    "test/unit/tools",
    "test/unit/web",
  ],
  repository: ["test/*.test.ts"],
  property: ["test/property", "test/seeds"],
  regression: ["test/regression"],
  conformance: ["test/conformance", "test/golden"],
};

/** Files that depend on what their process holds: a process for each. */
const ownProcess: readonly string[] = [
  ...nccl("process/koffi-names.test.ts", "process/start.test.ts", "process/world.test.ts"),
  "test/unit/cli/doctor-command.test.ts",
  // The collector runs late in a process with a large heap.
  "test/unit/backends/sim/wasm-pressure.long.test.ts",
  // Timers that other tests leave, and memory that they have reserved, change what a world concludes.
  ...[
    "arena-lifetime.long.test.ts",
    "deadlock-verdict.test.ts",
    "failed-stalls.test.ts",
    "full-arena.long.test.ts",
    "worker-threads.long.test.ts",
  ].map((name) => `test/regression/${name}`),
  // A rank that leaves is a deadlock in real time: a case of the suite.
  ...["host-backend.test.ts", "planted-backends.long.test.ts"].map(
    (name) => `test/conformance/${name}`,
  ),
];

/** True for a file that a condition holds of, or of what it imports of test. */
function reaches(
  path: string,
  holds: (path: string) => boolean,
  seen = new Set<string>(),
): boolean {
  if (holds(path)) return true;
  seen.add(path);
  return [...readFileSync(path, "utf8").matchAll(/from "(\.{1,2}\/[^"]+\.ts)"/g)]
    .map(([, name = ""]) => join(dirname(path), name))
    .filter((used) => used.startsWith("test/") && existsSync(used))
    .some((used) => !seen.has(used) && reaches(used, holds, seen));
}

const testFiles = readdirSync("test", { recursive: true, encoding: "utf8" })
  .map((name) => join("test", name))
  .filter((path) => path.endsWith(".test.ts"));

/** Files that `--mode all` gives nothing but what `vitest run` has: they do not draw by the mode. */
const sameInAll = (): string[] =>
  testFiles
    .filter((path) => !path.endsWith(".long.test.ts"))
    .filter((path) => !reaches(path, (used) => /support\/(seed|long-test)\.ts$/.test(used)));

/** Files that put something in the place of modules of src, or load them again. */
const replacing = testFiles.filter((path) =>
  reaches(path, (used) => /vi\.(mock|doMock|resetModules)\(/.test(readFileSync(used, "utf8"))),
);

/** Without `--project` all areas are one project: a process loads the modules of src once, not once for each area. */
const isByArea = process.argv.some((word) => word.startsWith("--project"));

/**
 * Runs of all areas take dist in the place of src. An area by its name, a watch and `--changed` take src, which they follow.
 */
const isBuilt =
  process.argv.includes("run") &&
  !isByArea &&
  !process.argv.some((word) => word.startsWith("--changed"));

const temporaryFiles = "./tools/temporary-files.mjs";

/** A shader takes seconds in software. */
const deviceTimeoutMs = 240_000;

type MakeProject = (
  name: string,
  folders: readonly string[],
  test?: object,
  takesDist?: boolean,
) => Project;

/** Projects that run alone, by modes of their names. */
const special = (project: MakeProject): Record<string, Project[] | undefined> => ({
  // On machines with GPUs; fails where there are none.
  gpu: [
    project(
      "gpu",
      ["test/gpu"],
      {
        // Files share the GPUs.
        ...{ fileParallelism: false, isolate: true, globalSetup: [temporaryFiles] },
        testTimeout: deviceTimeoutMs,
      },
      false,
    ),
  ],
  // In headless Chromium; fails where there is none.
  web: [
    project("web", ["test/web"], { hookTimeout: 120_000, globalSetup: [temporaryFiles] }, false),
  ],
  mutation: [project("mutation", ["test/mutation"], { testTimeout: 300_000 })],
  programs: [project("programs", ["test/programs"], { testTimeout: 600_000 })],
});

/**
 * Variables of a shell that would change what the tests' own processes do: launchers of clusters would make them ranks of another
 * job, and Node.js would colour the numbers that they print.
 */
const foreign =
  /^(SLURM_|OMPI_|PMIX?_|TORCHELASTIC_|((LOCAL_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)|FORCE_COLOR)$)/;

export default defineConfig(({ mode }): ViteUserConfig => {
  for (const name of Object.keys(process.env)) {
    // On GPUs the variables of NCCL are those of the machine; elsewhere they would change the tests' plans.
    const isForeign = foreign.test(name) || (mode !== "gpu" && name.startsWith("NCCL_"));
    if (isForeign) Reflect.deleteProperty(process.env, name);
  }

  const isAll = mode !== "test";
  const excluded = mode === "rest" ? sameInAll() : isAll ? [] : ["**/*.long.test.ts"];

  // A worker more takes a quarter more processor time, to compile src once again. Long tests run dist, and wait for processes and
  // the clock: with one worker more, a quarter of two cores is idle in those of job and tcp.
  const maxWorkers = availableParallelism() + (isAll ? 2 : 0);

  const project: MakeProject = (name, folders, test = {}, takesDist = isBuilt) => ({
    extends: true,
    ...(takesDist && { plugins: [builtSource] }),
    test: {
      name,
      include: globs(folders),
      exclude: excluded,
      globalSetup: ["./tools/build-before-tests.mjs", temporaryFiles],
      setupFiles: [
        "./test/support/close-opened.ts",
        "./test/support/equal-elements.ts",
        "./test/support/order-warnings.ts",
      ],
      // Stated here: `extends` reads this file again, in the mode `test`.
      maxWorkers,
      ...test,
    },
  });

  const shared = (
    name: string,
    folders: readonly string[],
    without: readonly string[] = [],
  ): Project =>
    project(name, folders, { exclude: [...excluded, ...globs([...ownProcess, ...without])] });

  const wholeAreas = (): Project[] => [
    shared("areas", Object.values(areas).flat(), isBuilt ? replacing : []),
    ...(isBuilt
      ? [project("replacing", replacing, { exclude: [...excluded, ...globs(ownProcess)] }, false)]
      : []),
  ];

  return {
    resolve: { alias: sourceEntries },
    test: {
      globals: false,
      retry: 0,
      passWithNoTests: false,
      pool: "forks",
      // Files of one worker share the modules of src: loading them for each took a third of the time.
      isolate: false,
      // Projects transform the same modules.
      experimental: { fsModuleCache: true },
      // Short tests leave much behind; the default of 16 MiB has it copied several times.
      execArgv: ["--max-semi-space-size=32"],
      // Machines stand still for seconds; what hangs is found all the same.
      testTimeout: 120_000,
      hookTimeout: 60_000,
      // Measured documents name the commit, by two processes of git each.
      env: {
        TWINCCL_COMMIT: "of-the-tests",
        ...(isAll && { TWINCCL_TESTS: mode === "rest" ? mode : "all" }),
      },
      // Polls wait on the real clock, on which quick time (test/support/quick-time.ts) passes seconds in a few milliseconds.
      expect: { poll: { timeout: 20_000, interval: 2 } },
      reporters: ["default", "./tools/closing-line-reporter.ts"],
      projects: special(project)[mode] ?? [
        ...(isByArea
          ? Object.entries(areas).map(([name, folders]) => shared(name, folders))
          : wholeAreas()),
        project("own-process", ownProcess, { isolate: true }, false),
        // On a WebGPU adapter, be it one in software; left out where there is none. One process has one device, for which each
        // kernel is compiled once. `npm run ok` runs them beside checks that use the other core.
        ...(isAll && mode !== "rest"
          ? [
              project("webgpu", ["test/webgpu"], {
                ...{ exclude: [], testTimeout: deviceTimeoutMs },
                ...{ maxWorkers: 1, sequence: { groupOrder: 1 } },
              }),
            ]
          : []),
      ],
    },
  };
});
