import { defineConfig, type ViteUserConfig } from "vitest/config";
import { sourceEntries } from "./tools/source-entries.ts";

const config: ViteUserConfig = defineConfig({
  resolve: { alias: sourceEntries },
  test: {
    globals: false,
    retry: 0,
    passWithNoTests: false,
    pool: "forks",
    // The default leaves a core idle, which on two cores is half of the machine.
    maxWorkers: "100%",
    reporters: ["default", "./tools/closing-line-reporter.ts"],
    projects: [
      {
        extends: true,
        test: {
          name: "unit",
          include: ["test/unit/**/*.test.ts", "test/*.test.ts"],
          globalSetup: ["./tools/build-before-tests.mjs"],
          // Only what must and must not compile; `npm run types` judges the rest of the code.
          typecheck: {
            enabled: true,
            include: ["test/types/**/*.test-d.ts"],
            ignoreSourceErrors: true,
          },
          // Machines stand still for seconds; what hangs is found all the same.
          testTimeout: 120_000,
          hookTimeout: 60_000,
          expect: { poll: { timeout: 20_000 } },
        },
      },
      {
        extends: true,
        test: {
          name: "property",
          include: [
            "test/property/**/*.test.ts",
            "test/regression/**/*.test.ts",
            "test/seeds/**/*.test.ts",
          ],
          globalSetup: ["./tools/build-before-tests.mjs"],
          testTimeout: 120_000,
          hookTimeout: 60_000,
        },
      },
      {
        extends: true,
        test: {
          name: "conformance",
          include: ["test/conformance/**/*.test.ts", "test/golden/**/*.test.ts"],
          globalSetup: ["./tools/build-before-tests.mjs"],
          testTimeout: 60_000,
          hookTimeout: 60_000,
        },
      },
      // On machines with GPUs, by name; fails where there are none. One file at a time has the GPUs.
      {
        extends: true,
        test: {
          name: "gpu",
          include: ["test/gpu/**/*.test.ts"],
          testTimeout: 240_000,
          fileParallelism: false,
        },
      },
      // In headless Chromium, by name: part of `npm run ok`; fails where there is none.
      {
        extends: true,
        test: {
          name: "web",
          include: ["test/web/**/*.test.ts"],
          testTimeout: 120_000,
          hookTimeout: 120_000,
        },
      },
      // On a WebGPU adapter, be it one in software; by name, where it fails without one. One file at a time has the device.
      {
        extends: true,
        test: {
          name: "webgpu",
          include: ["test/webgpu/**/*.test.ts"],
          testTimeout: 240_000,
          hookTimeout: 60_000,
          fileParallelism: false,
          isolate: false,
          // Projects of another number of workers run after each other.
          sequence: { groupOrder: 1 },
        },
      },
      // Long runs, by name: part of `npm run ok`, not of `npm test`.
      {
        extends: true,
        test: {
          name: "mutation",
          include: ["test/mutation/**/*.test.ts"],
          testTimeout: 300_000,
        },
      },
      {
        extends: true,
        test: {
          name: "programs",
          include: ["test/programs/**/*.test.ts"],
          testTimeout: 600_000,
        },
      },
    ],
  },
});

export default config;
