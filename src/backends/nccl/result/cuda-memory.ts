/** The CUDA calls about memory. */
import { hostView } from "../sys/host-view.ts";
import type { CudaLibrary } from "./cuda-status.ts";

const portableHostMemory = 1;
const copyKindByAddress = 4;

/** The structure of `cudaPointerGetAttributes`: 24 bytes, and 88 since CUDA 13. */
const pointerAttributesBytes = 128;

/** `cudaMemoryType`, by value. */
const memoryKinds = ["unregistered", "host", "device", "managed"] as const;

/** CUDA's facts about an address. */
export interface PointerInfo {
  readonly kind: (typeof memoryKinds)[number];
  /** The owner of the memory, for memory of devices. */
  readonly device: number;
}

/** Memory of devices and page-locked memory of the host. */
export interface CudaMemoryCalls {
  malloc(bytes: number): bigint;
  free(ptr: bigint): void;
  hostAlloc(bytes: number): bigint;
  hostFree(ptr: bigint): void;
  /** Page-locked memory as an array, without a copy; valid until it is given back. */
  hostView(ptr: bigint, bytes: number): Uint8Array;
  pointerInfo(ptr: bigint): PointerInfo;
  /** Copies between any two memories, in stream order. */
  copy(
    target: bigint | Uint8Array,
    source: bigint | Uint8Array,
    bytes: number,
    stream: bigint,
  ): void;
  /** Sets bytes, in stream order. */
  set(ptr: bigint, value: number, bytes: number, stream: bigint): void;
}

/** Wraps these calls. */
export function memoryCalls({ get, check, handle }: CudaLibrary): CudaMemoryCalls {
  const memcpyAsync = get("memcpyAsync");
  return {
    malloc: (bytes) => handle("cudaMalloc", (out) => get("malloc")(out, bytes)),
    free: (ptr) => check(get("free")(ptr), "cudaFree"),
    hostAlloc: (bytes) =>
      handle("cudaHostAlloc", (out) => get("hostAlloc")(out, bytes, portableHostMemory)),
    hostFree: (ptr) => check(get("freeHost")(ptr), "cudaFreeHost"),
    hostView,
    pointerInfo(ptr) {
      const fields = new Int32Array(pointerAttributesBytes / 4);
      check(get("pointerGetAttributes")(fields, ptr), "cudaPointerGetAttributes");
      const [kind = 0, device = -1] = fields;
      return { kind: memoryKinds[kind] ?? "unregistered", device };
    },
    copy: (target, source, bytes, stream) =>
      check(memcpyAsync(target, source, bytes, copyKindByAddress, stream), "cudaMemcpyAsync"),
    set: (ptr, value, bytes, stream) =>
      check(get("memsetAsync")(ptr, value, bytes, stream), "cudaMemsetAsync"),
  };
}
