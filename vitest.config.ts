/**
 * The tests: a project for each area of the code, and projects that run by name.
 *
 * `vitest run` proves every claim in two to three minutes; `--mode all` adds the files `*.long.test.ts` and draws all cases of
 * properties. `--project AREA` runs one area. Tests that need a machine of their own, or minutes, are modes.
 */
import { defineConfig, type ViteUserConfig } from "vitest/config";
import { sourceEntries } from "./tools/source-entries.ts";

type Project = NonNullable<NonNullable<ViteUserConfig["test"]>["projects"]>[number];

const globs = (folders: readonly string[]): string[] =>
  folders.map((folder) => (folder.endsWith(".test.ts") ? folder : `${folder}/**/*.test.ts`));

/** Folders of the NCCL backend's tests, and with `*` the files beside them. */
const nccl = (...folders: readonly string[]): string[] =>
  folders.map((name) => `test/unit/backends/nccl/${name === "*" ? "*.test.ts" : name}`);

export default defineConfig(({ mode }): ViteUserConfig => {
  const isAll = mode !== "test";

  const project = (name: string, folders: readonly string[], test: object = {}): Project => ({
    extends: true,
    test: {
      name,
      include: globs(folders),
      exclude: isAll ? [] : ["**/*.long.test.ts"],
      globalSetup: ["./tools/build-before-tests.mjs"],
      ...test,
    },
  });

  /** Tests that mock modules or load C libraries: a process for each file. */
  const ownModules = { isolate: true };

  const closesOpened = { setupFiles: ["./test/support/close-opened.ts"] };

  /** Tests that one process runs after each other, because they share a device. */
  const onDevice = { fileParallelism: false, testTimeout: 240_000 };

  /** Projects that run alone, by modes of their names. */
  const special: Record<string, Project[] | undefined> = {
    // On machines with GPUs; fails where there are none.
    gpu: [project("gpu", ["test/gpu"], { ...onDevice, ...ownModules, globalSetup: [] })],
    // In headless Chromium; fails where there is none.
    web: [project("web", ["test/web"], { hookTimeout: 120_000, globalSetup: [] })],
    mutation: [project("mutation", ["test/mutation"], { testTimeout: 300_000, globalSetup: [] })],
    programs: [project("programs", ["test/programs"], { testTimeout: 600_000, globalSetup: [] })],
  };

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
      // The default leaves a core idle, which on two cores is half of the machine.
      maxWorkers: "100%",
      // Machines stand still for seconds; what hangs is found all the same.
      testTimeout: 120_000,
      hookTimeout: 60_000,
      env: isAll ? { TWINCCL_TESTS: "all" } : {},
      expect: { poll: { timeout: 20_000 } },
      reporters: ["default", "./tools/closing-line-reporter.ts"],
      projects: special[mode] ?? [
        project("api", ["test/unit/api", "test/unit/misuse", "test/unit/numerics"], {
          // Only what must and must not compile; `npm run types` judges the rest of the code.
          typecheck: {
            enabled: isAll,
            include: ["test/types/**/*.test-d.ts"],
            ignoreSourceErrors: true,
          },
        }),
        project("algorithms", ["test/unit/algorithms", "test/unit/catalogue.test.ts"]),
        project("sim", ["test/unit/backends/sim"]),
        project("nccl", nccl("*", "calls", "device", "discovery", "job"), closesOpened),
        project("native", nccl("sys", "process"), ownModules),
        project("rendezvous", [...nccl("rendezvous"), "test/unit/launched-ranks"], {
          ...ownModules,
          ...closesOpened,
        }),
        project("parallel", ["test/unit/parallel"]),
        project("tools", [
          "test/unit/bench",
          "test/unit/cli",
          "test/unit/examples",
          "test/unit/golden",
          "test/unit/testing",
          "test/unit/tools",
          "test/unit/web",
        ]),
        project("repository", ["test/*.test.ts"]),
        project("property", ["test/property", "test/seeds"]),
        project("regression", ["test/regression"], { ...ownModules, ...closesOpened }),
        project("conformance", ["test/conformance", "test/golden"]),
        // On a WebGPU adapter, be it one in software; left out where there is none. Projects of another number of workers
        // run after each other.
        ...(isAll
          ? [project("webgpu", ["test/webgpu"], { ...onDevice, sequence: { groupOrder: 1 } })]
          : []),
      ],
    },
  };
});
