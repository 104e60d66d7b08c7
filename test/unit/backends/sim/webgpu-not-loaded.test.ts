/** A missing WebGPU is reported with the reason and the cure. */
import { expect, test } from "vitest";
import { notLoaded } from "../../../../src/backends/sim/executors/webgpu/adapter.ts";

test.each([
  ["ERR_MODULE_NOT_FOUND", "Cannot find package 'webgpu'", "in Node: npm install webgpu"],
  ["ERR_DLOPEN_FAILED", "version `GLIBCXX_3.4.32' not found", "its build does not fit this system"],
])("%s", (code, reason, hint) => {
  const cause = Object.assign(new Error(`${reason}\nand more`), { code });
  const error = notLoaded(cause);
  expect(error).toMatchObject({ code: "ERR_COMM_BACKEND", cause });
  expect(error.message).toMatch(/^webgpu: there is no navigator.gpu/);
  expect(error.message).toContain(`did not load: ${reason}\nhint: ${hint}`);
});
