/** The names of koffi's types are those of the whole process: programs declare NCCL's and CUDA's for their own calls. */
import { expect, test, vi } from "vitest";
import { koffi } from "../../../../../src/backends/nccl/sys/koffi.ts";
import { bind, prototype } from "../../../../../src/backends/nccl/sys/prototype.ts";
import { linuxReason } from "../../../../support/skipped.ts";

const names = ["cudaStream_t", "cudaError_t", "ncclComm_t", "ncclUniqueId", "ncclConfig_t"];
const libc = {
  abs: prototype<(status: number) => number>("cudaError_t abs(ncclResult_t status)", "1"),
  strlen: prototype<(id: Uint8Array) => bigint | number>("size_t strlen(ncclUniqueId* id)", "1"),
};

/** The C library, bound by a fresh copy of the modules. */
async function boundAnew(): Promise<readonly unknown[]> {
  vi.resetModules();
  const copy = await import("../../../../../src/backends/nccl/sys/prototype.ts");
  const { abs, strlen } = await copy.bind("libc.so.6", libc);
  return [abs?.(-7), Number(strlen?.(Uint8Array.of(65, 66, 0)))];
}

test.skipIf(linuxReason !== "")(
  `a program may use them before and after the backend, and two copies of the package may too${linuxReason}`,
  async () => {
    const { abs } = await bind("libc.so.6", libc);
    expect(abs?.(-6)).toBe(6);
    const module = await koffi();
    for (const name of names) module.struct(name, { other: "double" });
    expect(await boundAnew()).toEqual([7, 2]);
    expect(await boundAnew()).toEqual([7, 2]);
  },
);
