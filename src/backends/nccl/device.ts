/** One GPU of this process: its stream, on which everything of its rank happens in call order. */
import type { CudaCalls } from "./result/cuda.ts";

/** Keeps the thread's current device, so that it is switched only when it changes. */
export class CurrentDevice {
  readonly #cuda: CudaCalls;
  #device = -1;

  constructor(cuda: CudaCalls) {
    this.#cuda = cuda;
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
    this.#current.use(this.index);
    return this.cuda;
  }

  /** Gives the stream back. */
  release(): void {
    if (this.#ownsStream) this.use().streamDestroy(this.stream);
  }
}
