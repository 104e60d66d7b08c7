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

/** CUDA's current device of this thread. CUDA has one per thread, even if several copies of its library are loaded. */
export const thread: {
  /** The device that was set last; `undefined` where NCCL or other code may have set another. */
  current: Device | undefined;
  /** True if no other code has run since the setting. */
  isFresh: boolean;
  /** True once the caller's code sets the device too: from then on each use sets it. */
  isShared: boolean;
} = { current: undefined, isFresh: false, isShared: false };

function expireSetting(): void {
  thread.isFresh = false;
}

/** Notes that NCCL may have changed the current device. */
export function forgetCurrentDevice(): void {
  thread.current = undefined;
}

/** The error of calls on a released device. */
export function closedDeviceError(device: string): CommClosedError {
  return new CommClosedError({
    headline: `the world on ${device} was closed, and its memory with it`,
    hint: "copy what is needed to the host before it is closed",
  });
}

/** A GPU and the stream of its rank. */
export class Device {
  readonly index: number;
  readonly name: string;
  readonly stream: bigint;
  readonly cuda: CudaCalls;
  readonly #ownsStream: boolean;
  /** True once the caller has the stream. */
  #isLent = false;
  #released = false;

  constructor(cuda: CudaCalls, index: number, stream?: bigint) {
    this.cuda = cuda;
    this.index = index;
    this.name = `cuda:${index}`;
    if (stream !== undefined) this.share();
    this.use();
    if (stream !== undefined) this.#assertStream(stream);
    this.#ownsStream = stream === undefined;
    this.#isLent = !this.#ownsStream;
    this.stream = stream ?? cuda.streamCreate();
  }

  /** The stream, if it belongs to the caller. */
  get givenStream(): bigint | undefined {
    return this.#ownsStream ? undefined : this.stream;
  }

  /** True if the caller may put work on the stream. */
  get isLent(): boolean {
    return this.#isLent;
  }

  /** The stream, for work of the caller too. */
  lendStream(): bigint {
    this.share();
    this.#isLent = true;
    return this.stream;
  }

  /** Notes that the caller's own CUDA code sets devices too. */
  share(): void {
    thread.isShared = true;
    thread.current = undefined;
  }

  /** The device in the form that other threads need. */
  get threadDevice(): ThreadDevice {
    const setHere = (): void => {
      // The caller passes it to NCCL, which may change the device.
      forgetCurrentDevice();
      this.use();
      forgetCurrentDevice();
    };
    return { ...this.cuda.threadDevice(this.index), setHere };
  }

  /**
   * Makes this the thread's current device: CUDA creates memory and events on the current device. The setting is valid for this
   * event and its promises; the next callback of the event loop may change it.
   */
  use(): CudaCalls {
    if (this.#released) throw closedDeviceError(this.name);
    if (thread.isFresh && thread.current === this) return this.cuda;
    this.#set();
    if (!thread.isFresh) {
      thread.isFresh = true;
      process.nextTick(expireSetting);
    }
    return this.cuda;
  }

  /**
   * For calls on the stream alone, which tolerate another device: they skip the check for changes by other code. Without effect
   * where this is `thread.current`.
   */
  useForStream(): CudaCalls {
    if (this.#released) throw closedDeviceError(this.name);
    if (thread.current !== this) this.#set();
    return this.cuda;
  }

  #set(): void {
    this.cuda.setDevice(this.index);
    thread.current = thread.isShared ? undefined : this;
  }

  /** Refuses a stream of another device, on which CUDA records no event of this one, and a stream that is being captured. */
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
    const event = cuda.eventCreate();
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
    if (thread.current === this) thread.current = undefined;
  }

  /** Destroys the stream if the session created it. Later calls on the device fail. */
  release(): void {
    if (this.#released) return;
    try {
      if (this.#ownsStream) this.use().streamDestroy(this.stream);
    } finally {
      this.abandon();
    }
  }
}
