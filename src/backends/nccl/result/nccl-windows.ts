/** The NCCL calls of symmetric memory. */
import type { NcclLibrary } from "./nccl-status.ts";

/** `NCCL_WIN_COLL_SYMMETRIC`. */
export const symmetricWindow = 1;

/** Memory that all ranks register as a window. */
export interface NcclWindowCalls {
  /** True when the library has the functions of symmetric memory. */
  readonly hasWindows: boolean;
  /** Memory that can be registered as a window. */
  memAlloc(bytes: number): bigint;
  memFree(ptr: bigint): void;
  registerWindow(comm: bigint, ptr: bigint, bytes: number, window: BigUint64Array): void;
  deregisterWindow(comm: bigint, window: bigint): void;
}

/** Wraps these calls. */
export function windowCalls({ get, check, has }: NcclLibrary): NcclWindowCalls {
  return {
    hasWindows: has("commWindowRegister") && has("memAlloc"),
    memAlloc(bytes) {
      const ptr = new BigUint64Array(1);
      check(get("memAlloc")(ptr, bytes), "ncclMemAlloc");
      return ptr[0] as bigint;
    },
    memFree: (ptr) => check(get("memFree")(ptr), "ncclMemFree"),
    registerWindow: (comm, ptr, bytes, window) =>
      check(
        get("commWindowRegister")(comm, ptr, bytes, window, symmetricWindow),
        "ncclCommWindowRegister",
        comm,
      ),
    deregisterWindow: (comm, window) =>
      check(get("commWindowDeregister")(comm, window), "ncclCommWindowDeregister", comm),
  };
}
