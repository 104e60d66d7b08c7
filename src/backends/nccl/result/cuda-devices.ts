/** The CUDA calls about devices. */
import type { ThreadDevice } from "../sys/background.ts";
import { addressOf } from "../sys/prototype.ts";
import type { CudaLibrary } from "./cuda-status.ts";

const busIdLength = 32;

/** Attributes of a device, by `cudaDeviceAttr`. */
const attribute = { computeMajor: 75, computeMinor: 76 } as const;

/** Devices of this process. */
export interface CudaDeviceCalls {
  /** Version codes such as 13000 of the runtime and of what the driver supports. */
  versions(): { readonly runtime: number; readonly driver: number };
  deviceCount(): number;
  /** Compute capability, such as 9.0. */
  computeCapability(device: number): string;
  pciBusId(device: number): string;
  canAccessPeer(device: number, peer: number): boolean;
  /** Makes a device this thread's current one. */
  setDevice(device: number): void;
  /** A device as other threads take it. */
  threadDevice(device: number): Omit<ThreadDevice, "setHere">;
  memoryInfo(): { readonly freeBytes: number; readonly totalBytes: number };
}

/** Wraps these calls. */
export function deviceCalls({ get, check, int }: CudaLibrary): CudaDeviceCalls {
  const setDevice = get("setDevice");
  const attributeOf = (id: number, device: number): number =>
    int("cudaDeviceGetAttribute", (out) => get("deviceGetAttribute")(out, id, device));
  return {
    versions: () => ({
      runtime: int("cudaRuntimeGetVersion", get("runtimeGetVersion")),
      driver: int("cudaDriverGetVersion", get("driverGetVersion")),
    }),
    deviceCount: () => int("cudaGetDeviceCount", get("getDeviceCount")),
    computeCapability: (device) =>
      `${attributeOf(attribute.computeMajor, device)}.${attributeOf(attribute.computeMinor, device)}`,
    pciBusId(device) {
      const text = new Uint8Array(busIdLength);
      check(get("deviceGetPCIBusId")(text, text.length, device), "cudaDeviceGetPCIBusId");
      return new TextDecoder().decode(text.subarray(0, text.indexOf(0)));
    },
    canAccessPeer: (device, peer) =>
      int("cudaDeviceCanAccessPeer", (out) => get("deviceCanAccessPeer")(out, device, peer)) !== 0,
    setDevice: (device) => check(setDevice(device), "cudaSetDevice"),
    threadDevice: (index) => ({
      index,
      setter: addressOf(setDevice),
      check: (status) => check(status, "cudaSetDevice"),
    }),
    memoryInfo() {
      const [free, total] = [new BigUint64Array(1), new BigUint64Array(1)];
      check(get("memGetInfo")(free, total), "cudaMemGetInfo");
      return { freeBytes: Number(free[0]), totalBytes: Number(total[0]) };
    },
  };
}
