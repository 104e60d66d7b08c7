/**
 * The device of this process: the named one, else that of its local rank; and CUDA's reading of `CUDA_VISIBLE_DEVICES`.
 *
 * Where a launcher or a container shows each process a single GPU, it is that one, whatever the local rank.
 */
import { readdirSync } from "node:fs";

const variable = "CUDA_VISIBLE_DEVICES";

/** The device that a process is to work on, among those that it sees when it starts. */
export interface WantedDevice {
  readonly device: number;
  /** The caller named it; else it is the local rank. */
  readonly isNamed: boolean;
}

/** The process's handling of the variable that CUDA reads once, at its first use. */
export class ProcessDevice {
  readonly #env: NodeJS.ProcessEnv;
  readonly #countGpus: () => number;
  #isSettled = false;
  #restrictedTo: number | undefined;

  constructor(env = process.env, countGpus = gpusHere) {
    this.#env = env;
    this.#countGpus = countGpus;
  }

  /** The device, by its number when the process started, that alone is shown since; `undefined` where all still are. */
  get restrictedTo(): number | undefined {
    return this.#restrictedTo;
  }

  /**
   * Makes the device the only visible one, so that NCCL can be started on another thread, where no device is set, and be
   * left behind at a deadline. Where CUDA was used before, nothing changes. Later calls change nothing either.
   */
  restrictTo({ device }: WantedDevice): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    const name = device === 0 ? undefined : this.#nameOf(device);
    if (name === undefined) return;
    this.#env[variable] = name;
    this.#restrictedTo = device;
  }

  /** Its number among those that are visible now; `undefined` where it is none of them. */
  indexAmong(visible: number, { device, isNamed }: WantedDevice): number | undefined {
    if (visible === 1 && this.#restrictedTo !== undefined)
      return device === this.#restrictedTo ? 0 : undefined;
    if (visible === 1 && !isNamed) return 0;
    return device < visible ? device : undefined;
  }

  /** As the variable would name it; `undefined` where there is no such device, or it is hidden. */
  #nameOf(device: number): string | undefined {
    const list = this.#env[variable];
    const count = this.#countGpus();
    if (list !== undefined) return parseVisibleDevices(list, count)[device];
    return count === 0 || device < count ? String(device) : undefined;
  }
}

/** That of this process. */
export const processDevice = new ProcessDevice();

/** GPUs that the driver shows here, a container's own alone; 0 where it shows them otherwise. Asking CUDA would be its first use. */
function gpusHere(): number {
  try {
    return readdirSync("/dev").filter((name) => /^nvidia\d+$/.test(name)).length;
  } catch {
    return 0;
  }
}

/**
 * The devices that a list shows, as it names them: those before the first entry that is none. Behind that one CUDA hides
 * everything. Numbers from `gpus` on are none either, where it is known how many there are.
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
