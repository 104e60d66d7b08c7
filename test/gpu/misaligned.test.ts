/**
 * Symmetric kernels of NCCL 2.27.3 to 2.29.7 give wrong sums of 1- and 2-byte types at addresses that are no multiple of
 * 4: the raw C calls run into it, calls of the library never do.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Communicator, createWorld } from "twinccl";
import { nccl } from "twinccl/nccl";
import { expect } from "vitest";
import { gpuSizes, testOn } from "./machine.ts";

const sizes = await gpuSizes();
const here = sizes.length;

/** The program of a C++ source, built against the NCCL that is here. */
function built(source: URL): string {
  const folder = mkdtempSync(join(tmpdir(), "twinccl-misaligned-"));
  const build = fileURLToPath(new URL("../../bench/native/build.mjs", import.meta.url));
  const args = [build, join(folder, "program"), fileURLToPath(source)];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  expect(stderr).toBe("");
  expect(status).toBe(0);
  return stdout.trim();
}

/** Elements with a sum other than the number of ranks. */
interface Wrong {
  readonly allReduce: number;
  readonly reduceScatter: number;
}

testOn(2, here)("raw calls at such addresses give wrong sums, as known versions do", async () => {
  const program = built(new URL("native/misaligned.cpp", import.meta.url));
  const env = { ...process.env, NCCL_NVLS_ENABLE: "0" };
  const { status, stdout, stderr } = spawnSync(program, ["2"], { env, encoding: "utf8" });
  expect(stderr).toBe("");
  expect(status).toBe(0);
  const found = JSON.parse(stdout) as { nccl: number; aligned: Wrong; misaligned: Wrong };
  expect(found.aligned).toEqual({ allReduce: 0, reduceScatter: 0 });
  const defective = found.nccl >= 22_703 && found.nccl <= 22_907;
  expect(found.misaligned.allReduce > 0).toBe(defective);
  expect(found.misaligned.reduceScatter > 0).toBe(defective);
});

/** A sum of ones over two ranks through the library, with everything in symmetric memory. */
async function sums(scatters: boolean, count: number, offset: number): Promise<readonly number[]> {
  const world = await createWorld({ backend: nccl(), size: 2 });
  try {
    const outputs = await world.run(async (comm: Communicator) => {
      const sent = offset + (scatters ? 2 * count : count);
      const send = comm.alloc("float16", sent, { symmetric: true }).subarray(offset);
      const recv = comm.alloc("float16", offset + count, { symmetric: true }).subarray(offset);
      send.fill(1);
      if (scatters) await comm.reduceScatter({ send, recv, op: "sum" });
      else await comm.allReduce({ send, recv, op: "sum" });
      return [...(await recv.toHost())];
    });
    return outputs.flat();
  } finally {
    await world.close();
  }
}

const two = 0x4000;

testOn(2, here)("aligned calls of the library give right sums", async () => {
  expect(new Set(await sums(false, 1024, 2))).toEqual(new Set([two]));
  expect(new Set(await sums(true, 1024, 2))).toEqual(new Set([two]));
});

testOn(2, here)("the library refuses the others by name, and computes nothing", async () => {
  for (const call of [() => sums(false, 1024, 1), () => sums(true, 1023, 0)]) {
    await expect(call()).rejects.toMatchObject({
      cause: { code: "ERR_COMM_UNSUPPORTED", message: expect.stringContaining("multiple of 4") },
    });
  }
});
