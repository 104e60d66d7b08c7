/** One GPU of this process: its stream, on which everything of its rank happens in call order. */
import { CommClosedError } from "../../api/index.ts";
import type { CudaCalls } from "./result/cuda.ts";

const currents = new WeakMap<CudaCalls, CurrentDevice>();

/** Keeps the thread's current device, so that it is switched only when it changes. */
export class CurrentDevice {
  readonly #cuda: CudaCalls;
  #device = -1;

  private constructor(cuda: CudaCalls) {
    this.#cuda = cuda;
  }

  /** The one of this thread: worlds of one process switch the same device. */
  static of(cuda: CudaCalls): CurrentDevice {
    let current = currents.get(cuda);
    if (current === undefined) {
      current = new CurrentDevice(cuda);
      currents.set(cuda, current);
    }
    return current;
  }

  use(device: number): void {
    if (device === this.#device) return;
    this.#cuda.setDevice(device);
    this.#device = device;
  }

  /** NCCL or other code may have switched it. */
  forget(): void {
    this.#device = -1;
  }
}

/** A GPU and the stream that its rank works on. */
export class Device {
  readonly index: number;
  readonly name: string;
  readonly stream: bigint;
  readonly cuda: CudaCalls;
  readonly #current: CurrentDevice;
  readonly #ownsStream: boolean;
  #released = false;

  constructor(cuda: CudaCalls, current: CurrentDevice, index: number, stream?: bigint) {
    this.cuda = cuda;
    this.index = index;
    this.name = `cuda:${index}`;
    this.#current = current;
    this.use();
    this.#ownsStream = stream === undefined;
    this.stream = stream ?? cuda.streamCreate();
  }

  /** Makes it the thread's current device: memory and events belong to the current one. */
  use(): CudaCalls {
    if (this.#released) {
      throw new CommClosedError({
        headline: `the world on ${this.name} was closed, and its memory with it`,
        hint: "copy what is needed to the host before world.close()",
      });
    }
    this.#current.use(this.index);
    return this.cuda;
  }

  /** Leaves the stream behind, with work on it that does not end. */
  abandon(): void {
    this.#released = true;
  }

  /** Gives the stream back. Nothing can be done with the device from here on. */
  release(): void {
    if (this.#released) return;
    try {
      if (this.#ownsStream) this.use().streamDestroy(this.stream);
    } finally {
      this.#released = true;
    }
  }
}
