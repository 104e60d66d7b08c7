/** One GPU of this process and the stream of its rank, which runs all work in call order. */
import { CommClosedError, InvalidArgumentError } from "../../../api/index.ts";
import type { CudaCalls } from "../result/cuda.ts";
import { CudaError } from "../result/errors.ts";
import type { ThreadDevice } from "../sys/background.ts";

/** Device and stream of a rank. */
export interface RankPlacement {
  /** Index of the GPU among those visible to this process. */
  readonly device: number;
  /** The caller's stream; without one, the session creates a stream. */
  readonly stream?: bigint | undefined;
}

/**
 * CUDA's current device of this thread, as last set here, and the library that set it. CUDA has one such device per thread,
 * even if several copies of its library are loaded.
 */
const thread: {
  setBy: CudaCalls | undefined;
  device: number;
  /** True if no other code has run since the setting. */
  isFresh: boolean;
  isShared: boolean;
} = { setBy: undefined, device: -1, isFresh: false, isShared: false };

function expireSetting(): void {
  thread.isFresh = false;
}

/** Sets the thread's current device, unless it is set already. */
export class CurrentDevice {
  readonly #cuda: CudaCalls;

  private constructor(cuda: CudaCalls) {
    this.#cuda = cuda;
  }

  /** The current device of this thread, set through `cuda`. */
  static of(cuda: CudaCalls): CurrentDevice {
    return new CurrentDevice(cuda);
  }

  /** The setting is valid for this event and its promises; the next callback of the event loop may change it. */
  use(device: number): void {
    if (thread.isFresh && this.#isSet(device)) return;
    this.#set(device);
    if (thread.isFresh) return;
    thread.isFresh = true;
    process.nextTick(expireSetting);
  }

  /** Like `use`, for calls that tolerate another device: they skip the check for changes by other code. */
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

  /** Notes that the caller's code sets the device too: from now on each `use` sets it. */
  share(): void {
    thread.isShared = true;
  }

  /** Notes that NCCL may have changed the device. */
  invalidate(): void {
    thread.setBy = undefined;
  }
}

/** The error of calls on a released device. */
export function closedDeviceError(device: string): CommClosedError {
  return new CommClosedError({
    headline: `the world on ${device} was closed, and its memory with it`,
    hint: "copy what is needed to the host before world.close()",
  });
}

/** A GPU and the stream of its rank. */
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

  /** The stream, if it belongs to the caller. */
  get givenStream(): bigint | undefined {
    return this.#ownsStream ? undefined : this.stream;
  }

  /** Notes that the caller's own CUDA code sets devices too. */
  share(): void {
    this.#current.share();
  }

  /** The device in the form that other threads need. */
  get threadDevice(): ThreadDevice {
    const setHere = (): void => {
      // The caller passes it to NCCL, which may change the device.
      this.#current.invalidate();
      this.use();
      this.#current.invalidate();
    };
    return { ...this.cuda.threadDevice(this.index), setHere };
  }

  /** Makes this the thread's current device: CUDA creates memory and events on the current device. */
  use(): CudaCalls {
    if (this.#released) throw closedDeviceError(this.name);
    this.#current.use(this.index);
    return this.cuda;
  }

  /** For calls on the stream alone, which belongs to its device whatever the current one is. */
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

  /** Abandons the stream with its unfinished work. */
  abandon(): void {
    this.#released = true;
  }

  /** Destroys the stream if the session created it. Later calls on the device fail. */
  release(): void {
    if (this.#released) return;
    try {
      if (this.#ownsStream) this.use().streamDestroy(this.stream);
    } finally {
      this.#released = true;
    }
  }
}
