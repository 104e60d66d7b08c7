/** Two copies of the package in one program. */

import { createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { expect, test, vi } from "vitest";

test("a buffer of another copy of the package is refused as one", async () => {
  const own = await createWorld({ backend: sim(), size: 1 });
  vi.resetModules();
  const [api, backends] = await Promise.all([import("twinccl"), import("twinccl/sim")]);
  expect(api.createWorld).not.toBe(createWorld);
  const other = await api.createWorld({ backend: backends.sim(), size: 1 });
  const [send] = await other.run((comm) => comm.alloc("float32", 4));
  const [error] = await own.run((comm) =>
    comm.allReduce({ send: send as never, op: "sum" }).catch((fault) => fault),
  );
  expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "send" });
  expect(error.message).toContain(
    "send: it is a buffer of another copy of twinccl, needs a buffer",
  );
  expect(error.hint).toContain("import twinccl from one place");
  await Promise.all([own.close(), other.close()]);
});
