/** Connection of a job's ranks: at NCCL's start, unless the environment says otherwise. */
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { expect, test } from "vitest";
import { disableRuntimeConnect } from "../../../../../src/backends/nccl/process/start-variables.ts";

test.each([{}, { NCCL_RUNTIME_CONNECT: "" }])(
  "connections are made at the start by default: %j",
  (given) => {
    const env: NodeJS.ProcessEnv = { ...given };
    disableRuntimeConnect(env);
    expect(env).toEqual({ NCCL_RUNTIME_CONNECT: "0" });
  },
);

test.each(["1", "0"])("a variable that is set keeps its value: %j", (value) => {
  const env = { NCCL_RUNTIME_CONNECT: value };
  disableRuntimeConnect(env);
  expect(env).toEqual({ NCCL_RUNTIME_CONNECT: value });
});

test("a worker thread gets a warning that it cannot set the variable", async () => {
  const dist = new URL(
    "../../../../../dist/backends/nccl/process/start-variables.js",
    import.meta.url,
  ).href;
  const script = `
    const { parentPort } = require("node:worker_threads");
    import(${JSON.stringify(dist)}).then(({ disableRuntimeConnect }) => {
      const codes = [{}, { NCCL_RUNTIME_CONNECT: "1" }].map((env) => {
        try {
          disableRuntimeConnect(env);
          return "fine";
        } catch (error) {
          return error.code + " " + error.message;
        }
      });
      parentPort.postMessage(codes);
    });`;
  const worker = new Worker(script, { eval: true });
  const [codes] = (await once(worker, "message")) as [string[]];
  await worker.terminate();
  expect(codes[0]).toMatch(/^ERR_COMM_UNSUPPORTED .*NCCL_RUNTIME_CONNECT cannot be set/);
  expect(codes[1]).toBe("fine");
});
