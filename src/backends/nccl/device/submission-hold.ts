/**
 * Holds back work for the device while NCCL frees communicators on other threads. CUDA waits there for all kernels of the device,
 * and meanwhile blocks this thread in every call but queries. A kernel that waits for a rank of another process would keep both
 * threads, and no deadline, signal or loss would be noticed.
 */
import { longestTimerMs, nextTurn } from "../../../api/ledger/turns.ts";
import { keepAlive, settlesWithin } from "../../../job/async.ts";

/** Longest time for a connection to end behind its communicator. NCCL may keep its thread for ever. */
const lastConnectionMs = 15_000;

/** Longest time for work on other streams to end before a communicator with work under way is freed. */
const otherStreamsMs = 1_000;

/** True for the device of a stream that is left out. */
type IsApart = (device: object) => boolean;

/** The streams of a rank, each named by its device. */
interface Streams {
  /** True while work runs on one, apart from some. */
  isBusy(isApart: IsApart): boolean;
  /** Calls `step` once none is busy, before programs submit more. */
  whenIdle(isApart: IsApart, step: () => void): void;
}

/** Work under way of a communicator that is to be freed. */
interface BrokenWork {
  /** The device of its stream. */
  readonly device: object;
  /** Settles when other processes take no result of it. */
  readonly known: Promise<unknown>;
  /** Frees the communicator once, behind `known`. */
  readonly free: () => Promise<unknown>;
}

/** The hold of one session. */
export class SubmissionHold {
  /** True where kernels may wait for ranks of other processes: elsewhere a launch that blocks has no rank to wait for. */
  readonly spansProcesses: boolean;
  /** True while CUDA may block this thread. */
  isFreeing = false;
  /** Frees that are under way, or about to begin. */
  #frees = 0;
  #over: Promise<void> = Promise.resolve();
  #end = (): void => undefined;
  /** No free begins before these: first connections under way, whose kernels wait for other ranks, and news of `breakOff`. */
  readonly #awaited = new Set<Promise<unknown>>();
  readonly #broken = new Set<BrokenWork>();

  constructor(spansProcesses = true) {
    this.spansProcesses = spansProcesses;
  }

  /** True while no work may be submitted: from the turn before the first free on, until the last one has settled. */
  get isOn(): boolean {
    return this.#frees > 0;
  }

  /** Resolves when nothing is freed any more. */
  get over(): Promise<void> {
    return this.#over;
  }

  /**
   * Holds work back from now until `free` has settled. It runs in the next turn of the event loop: by then, the end of work that
   * was submitted before is recorded in the streams.
   */
  async during<T>(free: () => Promise<T>): Promise<T> {
    if (this.#frees++ === 0) {
      this.#over = new Promise((resolve) => {
        this.#end = resolve;
      });
    }
    try {
      await new Promise<void>(nextTurn);
      this.isFreeing = true;
      return await free();
    } finally {
      if (--this.#frees === 0) {
        this.isFreeing = false;
        this.#end();
      }
    }
  }

  /** Like `during`, at a moment in which the streams of the rank are idle: then `free` waits for no kernel, and so for no other rank. */
  whileIdle<T>(streams: Streams, free: () => Promise<T>): Promise<T> {
    return this.#whileIdle(streams, () => false, free);
  }

  /**
   * Like `whileIdle`, for a communicator with work under way, which ends with it, once `othersKnow` has resolved: while other streams
   * are idle, and after a second in any case, since their work may wait for this. All such communicators are freed in one turn: the
   * free of one waits for the work of the others, and may block this thread before it frees them.
   */
  async breakOff<T>(
    streams: Streams,
    device: object,
    othersKnow: Promise<unknown>,
    free: () => Promise<T>,
  ): Promise<T> {
    const known = othersKnow.finally(() => this.#awaited.delete(known));
    this.#awaited.add(known);
    let freed: Promise<T> | undefined;
    const once = (): Promise<T> => (freed ??= known.then(free));
    const work = { device, known, free: once };
    this.#broken.add(work);
    const all = () => Promise.allSettled(Array.from(this.#broken, (each) => each.free()));
    const isApart = (each: object) => [...this.#broken].some(({ device }) => device === each);
    try {
      await known;
      const idle = this.isFreeing ? undefined : this.#whileIdle(streams, isApart, all);
      if (idle === undefined || !(await settlesWithin(otherStreamsMs, idle))) {
        await Promise.allSettled(Array.from(this.#broken, (each) => each.known));
        await this.during(all);
      }
      return await once();
    } finally {
      this.#broken.delete(work);
    }
  }

  async #whileIdle<T>(streams: Streams, isApart: IsApart, free: () => Promise<T>): Promise<T> {
    const attempt = async (): Promise<{ readonly value: T } | undefined> =>
      streams.isBusy(isApart) || this.#awaited.size > 0 ? undefined : { value: await free() };
    let freed: { readonly value: T } | undefined;
    while (freed === undefined) {
      await Promise.allSettled(this.#awaited);
      freed = await new Promise((resolve) => {
        streams.whenIdle(isApart, () => resolve(this.during(attempt)));
      });
    }
    return freed.value;
  }

  /** Connects ranks while nothing is freed; false where the signal fires before. */
  async connect(connect: () => Promise<void>, cancelled: AbortSignal): Promise<boolean> {
    if (!(await this.endsBefore(cancelled)) || cancelled.aborted) return false;
    const connecting = connect();
    const end = connectionEnd(connecting, cancelled).finally(() => this.#awaited.delete(end));
    this.#awaited.add(end);
    await connecting;
    return true;
  }

  /** False where the signal fires before nothing is freed any more. */
  async endsBefore(cancelled: AbortSignal): Promise<boolean> {
    while (this.isOn) {
      if (!(await keepAlive(settlesWithin(longestTimerMs, this.#over, cancelled)))) return false;
    }
    return true;
  }
}

/** Resolves when a connection settles, or cannot be waited for. */
async function connectionEnd(connecting: Promise<void>, cancelled: AbortSignal): Promise<void> {
  if (await settlesWithin(longestTimerMs, connecting, cancelled)) return;
  await settlesWithin(lastConnectionMs, connecting);
}
