/** The native helper's builds: which are loaded, which are refused and why, and what a build needs of its machine. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { helper, loadHelper } from "../../../../../src/backends/nccl/sys/helper.ts";
import { compileLibrary } from "../../../../support/c-library.ts";
import { builtHelper, reason } from "./built-helper.ts";

const source = new URL("../../../../../native/helper.c", import.meta.url);

describe.skipIf(reason !== "")(`the native helper${reason}`, () => {
  test("is loaded once, from its place in the package", async () => {
    const found = await builtHelper();
    expect(await helper({})).toBe(found);
    const place = `native/${process.platform}-${process.arch}/helper.so`;
    expect(found.path).toBe(fileURLToPath(new URL(`../../../../../${place}`, import.meta.url)));
    expect(existsSync(found.path)).toBe(true);
  });

  test("is compiled anywhere without a warning", async () => {
    expect(await loadHelper(compileLibrary(source, "same.so"))).toMatchObject({
      run: expect.any(Function),
    });
  });

  test("is refused by name in another version", async () => {
    const other = compileLibrary(source, "other.so", { HELPER_VERSION: 7 });
    expect(await loadHelper(other)).toBe(
      `${other} is of version 7, needs 1: npm run build builds it`,
    );
    const echo = new URL("native/echo.c", import.meta.url);
    const foreign = compileLibrary(echo, "foreign.so", { VERSION: 22809 });
    expect(await loadHelper(foreign)).toBe(
      `${foreign} is of version unknown, needs 1: npm run build builds it`,
    );
  });

  test("is absent where there is no file, or none that can be loaded", async () => {
    const path = compileLibrary(source, "missing.so").replace("missing.so", "nowhere.so");
    expect(await loadHelper(path)).toMatch(/^there is no \/.*nowhere\.so: npm run build builds it/);
    writeFileSync(path, "no library");
    expect(await loadHelper(path)).toMatch(/nowhere\.so cannot be loaded: /);
  });

  test.each(["linux-x64", "linux-arm64"])("loads with the oldest C library, %s", (machine) => {
    const built = new URL(`../../../../../native/${machine}/helper.so`, import.meta.url);
    // Packing needs both; a checkout has that of its machine.
    if (!existsSync(built)) return;
    const needed = readFileSync(built, "latin1").match(/GLIBC_2\.\d+/g) ?? [];
    expect(needed.length).toBeGreaterThan(0);
    // Node.js 20 needs 2.28.
    expect(needed.filter((name) => Number(name.slice("GLIBC_2.".length)) > 28)).toEqual([]);
  });
});
