/** Memory that is larger than one array of this runtime covers: refused before any call, by name. */
import { constants } from "node:buffer";
import { createWorld } from "twinccl";
import { cpu, type Executor, sim, wasm } from "twinccl/sim";
import { expect, test } from "vitest";
import { skippedWithout } from "../../../support/skipped.ts";

/** Node.js 22 and newer have no limit that a buffer can pass; no host gives this much. */
const tooMany = Math.min(constants.MAX_LENGTH + 1, 2 ** 52);

const executors: readonly (readonly [string, () => Executor])[] = [
  ["cpu", cpu],
  ["wasm", wasm],
];

test.each(executors)("%s: alloc gives no more bytes than calls can view", async (_, executor) => {
  const world = await createWorld({ backend: sim({ executor: executor() }), size: 1 });
  const text = `alloc: ${tooMany} bytes are more than this host gives in one piece`;
  await world.run((comm) => {
    const error = {
      code: "ERR_COMM_ARG",
      field: "length",
      rank: 0,
      device: "sim:0",
      message: expect.stringContaining(text),
    };
    expect(() => comm.alloc("int8", tooMany)).toThrow(expect.objectContaining(error));
  });
  await world.close();
});

/** Later runtimes cover more than this machine may have. */
const reason = skippedWithout(constants.MAX_LENGTH <= 2 ** 32, "an older Node.js");

test.skipIf(reason !== "").each(executors)(
  `%s: a call takes no array over more bytes${reason}`,
  async (_, executor) => {
    const world = await createWorld({ backend: sim({ executor: executor() }), size: 1 });
    const lent = new Int32Array(new ArrayBuffer(8 * Math.ceil(tooMany / 8)), 0, 4);
    await world.run(async (comm) => {
      const message = expect.stringMatching(/send: its ArrayBuffer of \d+ bytes is larger than/);
      const error = { code: "ERR_COMM_ARG", field: "send", rank: 0, message };
      await expect(comm.allReduce({ send: lent, op: "sum" })).rejects.toMatchObject(error);
      await comm.barrier();
    });
    await world.close();
  },
);
