/**
 * Holds back work for the device while NCCL frees communicators on other threads. CUDA waits there for all kernels of the device,
 * and meanwhile blocks this thread in every call but queries. A kernel that waits for a rank of another process would keep both
 * threads, and no deadline, signal or loss would be noticed.
 */
import { longestTimerMs, nextTurn } from "../../../api/ledger/turns.ts";
import { keepAlive, settlesWithin } from "../../../job/async.ts";

/** Longest time for a connection to end behind its communicator. NCCL may keep its thread for ever. */
const lastConnectionMs = 15_000;

/** The streams of a rank, each named by its device. */
interface Streams {
  /** True while work runs on one, apart from some. */
  isBusy(apart: readonly object[]): boolean;
  /** Calls `step` once none is busy, before programs submit more. */
  whenIdle(apart: readonly object[], step: () => void): void;
}

/** The hold of one session. */
export class SubmissionHold {
  /** True while CUDA may block this thread. */
  isFreeing = false;
  /** Frees that are under way, or about to begin. */
  #frees = 0;
  #over: Promise<void> = Promise.resolve();
  #end = (): void => undefined;
  /** First connections under way, whose kernels wait for other ranks. */
  readonly #connections = new Set<Promise<unknown>>();
  /** The streams of communicators that are about to be freed with work under way. */
  readonly #breaking: object[] = [];

  /** True while no work may be submitted: from the turn before the first free on, until the last one has settled. */
  get isOn(): boolean {
    return this.#frees > 0;
  }

  /** Resolves when work may be submitted. */
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

  /**
   * Like `during`, at a moment in which the streams of the rank are idle: then `free` waits for no kernel, and so for no other rank.
   * Work on the stream of `breaking` ends with its free.
   */
  async whileIdle<T>(streams: Streams, free: () => Promise<T>, breaking?: object): Promise<T> {
    if (breaking !== undefined) this.#breaking.push(breaking);
    const apart = breaking === undefined ? [] : this.#breaking;
    const attempt = async (): Promise<{ readonly value: T } | undefined> =>
      streams.isBusy(apart) || this.#connections.size > 0 ? undefined : { value: await free() };
    let freed: { readonly value: T } | undefined;
    while (freed === undefined) {
      await Promise.allSettled(this.#connections);
      freed = await new Promise((resolve) => {
        streams.whenIdle(apart, () => resolve(this.during(attempt)));
      });
    }
    if (breaking !== undefined) this.#breaking.splice(this.#breaking.indexOf(breaking), 1);
    return freed.value;
  }

  /** Connects ranks while nothing is freed; false where the signal fires before. */
  async connect(connect: () => Promise<void>, cancelled: AbortSignal): Promise<boolean> {
    if (!(await this.endsBefore(cancelled)) || cancelled.aborted) return false;
    const connecting = connect();
    const end = connectionEnd(connecting, cancelled).finally(() => this.#connections.delete(end));
    this.#connections.add(end);
    await connecting;
    return true;
  }

  /** False where the signal fires before work can be submitted. */
  async endsBefore(cancelled: AbortSignal | undefined): Promise<boolean> {
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
