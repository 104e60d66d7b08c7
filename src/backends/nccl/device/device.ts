/** One GPU of this process: its stream, on which everything of its rank happens in call order. */
import { CommClosedError, InvalidArgumentError } from "../../../api/index.ts";
import type { CudaCalls } from "../result/cuda.ts";
import { CudaError } from "../result/errors.ts";
import type { ThreadDevice } from "../sys/background.ts";

/** Where a rank works. */
export interface RankPlacement {
  /** Number of the GPU among those that this process sees. */
  readonly device: number;
  /** The caller's stream; one is made when left out. */
  readonly stream?: bigint | undefined;
}

/**
 * CUDA's current device of this thread, which is one by whatever name its libraries are loaded: as it was last set here, and by
 * which of them.
 */
const thread: {
  setBy: CudaCalls | undefined;
  device: number;
  /** No other code had a turn since. */
  isFresh: boolean;
  isShared: boolean;
} = { setBy: undefined, device: -1, isFresh: false, isShared: false };

function expireSetting(): void {
  thread.isFresh = false;
}

/** Switches the thread's current device where it is another one. */
export class CurrentDevice {
  readonly #cuda: CudaCalls;

  private constructor(cuda: CudaCalls) {
    this.#cuda = cuda;
  }

  /** That of this thread, by a library. */
  static of(cuda: CudaCalls): CurrentDevice {
    return new CurrentDevice(cuda);
  }

  /**
   * The setting is valid until the event loop goes on to another timer or event, with the promises that follow from this
   * one: the next callback may switch it.
   */
  use(device: number): void {
    if (thread.isFresh && this.#isSet(device)) return;
    this.#set(device);
    if (thread.isFresh) return;
    thread.isFresh = true;
    process.nextTick(expireSetting);
  }

  /** The same for calls that would do with another one, as far as is known here. */
  prefer(device: number): void {
    if (!this.#isSet(device)) this.#set(device);
  }

  #isSet(device: number): boolean {
    return device === thread.device && thread.setBy === this.#cuda && !thread.isShared;
  }

  #set(device: number): void {
    this.#cuda.setDevice(device);
    thread.device = device;
    thread.setBy = this.#cuda;
  }

  /** Code of the caller switches it too, at any time: from here on it is set whenever it is needed. */
  share(): void {
    thread.isShared = true;
  }

  /** NCCL may have switched it. */
  invalidate(): void {
    thread.setBy = undefined;
  }
}

/** The error of users of a device that was given back. */
export function closedDeviceError(device: string): CommClosedError {
  return new CommClosedError({
    headline: `the world on ${device} was closed, and its memory with it`,
    hint: "copy what is needed to the host before world.close()",
  });
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
    if (stream !== undefined) this.share();
    this.use();
    if (stream !== undefined) this.#assertStream(stream);
    this.#ownsStream = stream === undefined;
    this.stream = stream ?? cuda.streamCreate();
  }

  /** The stream where it is the caller's. */
  get givenStream(): bigint | undefined {
    return this.#ownsStream ? undefined : this.stream;
  }

  /** The caller has CUDA code of its own, which switches devices as well. */
  share(): void {
    this.#current.share();
  }

  /** As other threads take it. */
  get threadDevice(): ThreadDevice {
    const setHere = (): void => {
      // It is about to be given to NCCL, which may switch it.
      this.#current.invalidate();
      this.use();
      this.#current.invalidate();
    };
    return { ...this.cuda.threadDevice(this.index), setHere };
  }

  /** Makes it the thread's current device: memory and events belong to the current one. */
  use(): CudaCalls {
    if (this.#released) throw closedDeviceError(this.name);
    this.#current.use(this.index);
    return this.cuda;
  }

  /** For what concerns the stream alone, which belongs to the device whatever the current one is. */
  useForStream(): CudaCalls {
    if (this.#released) throw closedDeviceError(this.name);
    this.#current.prefer(this.index);
    return this.cuda;
  }

  /** True when a stream belongs to this device: CUDA records an event of the device only on such a stream. */
  #assertStream(stream: bigint): void {
    const { cuda, name } = this;
    const fault = (found: string, cause?: unknown): InvalidArgumentError =>
      new InvalidArgumentError(
        {
          headline: `nccl: streams: ${stream} ${found}, needs a live stream of ${name} that is not being captured`,
          hint: "make it with cudaSetDevice and cudaStreamCreateWithFlags, and keep it until the world is closed",
        },
        { field: "streams", cause },
      );
    const event = cuda.eventCreate(false);
    try {
      if (cuda.isCapturing(stream)) throw fault("is being captured");
      cuda.eventRecord(event, stream);
    } catch (error) {
      throw error instanceof CudaError
        ? fault(`cannot be used: ${error.statusName}`, error)
        : error;
    } finally {
      cuda.eventDestroy(event);
    }
  }

  /** Leaves the stream behind, with work on it that does not end. */
  abandon(): void {
    this.#released = true;
  }

  /** Gives the stream back where it is our own. Nothing can be done with the device from here on. */
  release(): void {
    if (this.#released) return;
    try {
      if (this.#ownsStream) this.use().streamDestroy(this.stream);
    } finally {
      this.#released = true;
    }
  }
}
