/** A machine's GPUs as one process sees them, by its CUDA_VISIBLE_DEVICES: each process has a current device of its own. */
import type { Libraries } from "../../../src/backends/nccl/discovery/libraries.ts";
import type { FakeGpus } from "./index.ts";
import { cudaError, type Machine } from "./machine.ts";

/** The libraries of a process. CUDA reads the variable once, at its first call. */
export function librariesOf({ machine, setup }: FakeGpus, env: NodeJS.ProcessEnv): Libraries {
  const { cuda, nccl, ...rest } = setup.libraries;
  let read: readonly number[] | undefined;
  const visible = (): readonly number[] => {
    read ??= listed(machine, env["CUDA_VISIBLE_DEVICES"]);
    return read;
  };
  const physical = (device: number): number => {
    const found = visible()[device];
    if (found === undefined) throw cudaError("cuda", 101, "cudaErrorInvalidDevice");
    return found;
  };
  let current: number | undefined;
  const inProcess = <T extends object>(calls: T): T => {
    const entries = Object.entries(calls).map(([name, call]) => {
      if (typeof call !== "function") return [name, call];
      const own = (...args: unknown[]): unknown => {
        machine.current = current ?? physical(0);
        try {
          return (call as (...args: unknown[]) => unknown)(...args);
        } finally {
          current = machine.current;
        }
      };
      return [name, own];
    });
    return Object.fromEntries(entries) as T;
  };
  const seen: typeof cuda = {
    ...cuda,
    deviceCount() {
      if (visible().length === 0) throw cudaError("cudaGetDeviceCount", 100, "cudaErrorNoDevice");
      return visible().length;
    },
    computeCapability: (device) => cuda.computeCapability(physical(device)),
    pciBusId: (device) => cuda.pciBusId(physical(device)),
    canAccessPeer: (device, peer) => cuda.canAccessPeer(physical(device), physical(peer)),
    setDevice: (device) => cuda.setDevice(physical(device)),
    threadDevice: (device) => cuda.threadDevice(physical(device)),
    pointerInfo(ptr) {
      const found = cuda.pointerInfo(ptr);
      return { ...found, device: visible().indexOf(found.device) };
    },
  };
  const { deviceCount, ...others } = seen;
  return { ...rest, cuda: { ...inProcess(others), deviceCount }, nccl: inProcess(nccl) };
}

/** The GPUs of a list of numbers and names, up to the first entry that is none. */
function listed({ devices }: Machine, list: string | undefined): number[] {
  const all = Array.from({ length: devices }, (_, device) => device);
  if (list === undefined) return all;
  const found = list.split(",").map((each) => {
    const name = each.trim();
    return all.find((device) => [String(device), uuidOf(device), migOf(device)].includes(name));
  });
  const end = found.indexOf(undefined);
  return (end < 0 ? found : found.slice(0, end)) as number[];
}

/** The name of a GPU. */
export const uuidOf = (device: number): string =>
  `GPU-${device}1b2c3d4-e5f6-7081-92a3-b4c5d6e7f809`;

/** The name of the one instance that a GPU was divided into. */
export const migOf = (device: number): string => `MIG-${device}1b2c3d4-e5f6-7081-92a3-b4c5d6e7f809`;
