/**
 * The device of this process: the named one, otherwise the one of its local rank. Parses `CUDA_VISIBLE_DEVICES` as CUDA does.
 *
 * If a launcher or a container exposes a single GPU to each process, that GPU is used, whatever the local rank.
 */
import { readdirSync } from "node:fs";

const variable = "CUDA_VISIBLE_DEVICES";

/** The requested device, as an index among those visible at the start of the process. */
export interface RequestedDevice {
  readonly device: number;
  /** True if the caller named the device; otherwise it is the local rank. */
  readonly isNamed: boolean;
}

/** Sets `CUDA_VISIBLE_DEVICES`, which CUDA reads once, at its first use. */
export class ProcessDevice {
  readonly #env: NodeJS.ProcessEnv;
  readonly #countGpus: () => number;
  #isSettled = false;
  #restrictedTo: number | undefined;

  constructor(env = process.env, countGpus = gpusHere) {
    this.#env = env;
    this.#countGpus = countGpus;
  }

  /**
   * The only visible device since `restrictTo`, by its index at the start of the process; `undefined` without a restriction.
   */
  get restrictedTo(): number | undefined {
    return this.#restrictedTo;
  }

  /**
   * Makes the device the only visible one. NCCL can then start on another thread, which has no device set, and be abandoned at
   * a deadline. Without effect after the first use of CUDA, and on later calls.
   */
  restrictTo({ device }: RequestedDevice): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    const name = device === 0 ? undefined : this.#nameOf(device);
    if (name === undefined) return;
    this.#env[variable] = name;
    this.#restrictedTo = device;
  }

  /** Index of the device among those visible now; `undefined` if it is not visible. */
  indexAmong(visible: number, { device, isNamed }: RequestedDevice): number | undefined {
    if (visible === 1 && this.#restrictedTo !== undefined)
      return device === this.#restrictedTo ? 0 : undefined;
    if (visible === 1 && !isNamed) return 0;
    return device < visible ? device : undefined;
  }

  /** Name of the device in the variable; `undefined` if it is missing or hidden. */
  #nameOf(device: number): string | undefined {
    const list = this.#env[variable];
    const count = this.#countGpus();
    if (list !== undefined) return parseVisibleDevices(list, count)[device];
    return count === 0 || device < count ? String(device) : undefined;
  }
}

/** The device of this process. */
export const processDevice = new ProcessDevice();

/**
 * Number of the driver's device files, in a container its own alone; 0 without such files. A query of CUDA would count as its
 * first use.
 */
function gpusHere(): number {
  try {
    return readdirSync("/dev").filter((name) => /^nvidia\d+$/.test(name)).length;
  } catch {
    return 0;
  }
}

/**
 * The visible devices of a list: the entries before the first invalid one, after which CUDA hides all. If `gpus` is known,
 * indices from `gpus` on are invalid too.
 */
export function parseVisibleDevices(list: string, gpus = 0): readonly string[] {
  const entries = list.split(",").map((entry) => entry.trim());
  const isNone = (entry: string): boolean =>
    entry === "" ||
    entry.startsWith("-") ||
    (gpus > 0 && /^\d+$/.test(entry) && Number(entry) >= gpus);
  const end = entries.findIndex(isNone);
  return end < 0 ? entries : entries.slice(0, end);
}
