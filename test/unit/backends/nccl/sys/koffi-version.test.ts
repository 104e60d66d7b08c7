/** A koffi that is too old is found by its name, and has other functions: it is refused by its version. */
import { expect, test } from "vitest";
import { koffi, recent } from "../../../../../src/backends/nccl/sys/koffi.ts";

test.each([
  [{ default: { version: "2.9.0" } }, "2.9.0"],
  [{ version: "3.2.9" }, "3.2.9"],
  [{}, "unknown"],
])("%o", (module, version) => {
  expect(() => recent(module)).toThrow(
    expect.objectContaining({
      code: "ERR_COMM_BACKEND",
      message: expect.stringMatching(
        new RegExp(
          `^the package koffi is version ${version}, needs 3.3 or newer\nhint: npm install koffi@`,
        ),
      ),
    }),
  );
});

test.each(["3.3.0", "3.10.1", "4.0.0"])("%s is recent enough", (version) => {
  expect(recent({ version })).toEqual({ version });
});

test("the installed version is recent enough", async () => {
  const module = await koffi();
  expect(recent(module)).toBe(module);
});
