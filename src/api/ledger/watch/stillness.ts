/**
 * Whether the process computes on other threads: compression, cryptography, the compiling of WebAssembly.
 *
 * A runtime lists none of these among what is alive, and each may wake a rank. But all of them take processor time: a process
 * that took next to none from one look to the next, many times in a row, does nothing of the kind. Many, because on a machine
 * with more to do than processors a thread that computes waits its turn now and then, as the one that looks does.
 */

interface CountingProcess {
  readonly platform?: string;
  /** Microseconds of all threads. */
  readonly cpuUsage?: () => { readonly user: number; readonly system: number };
}

/** Looks are this far apart, as long as nothing computes. */
export const lookMs = 1;

/** As many looks in a row find a process still. Windows counts processor time in steps of a 64th of a second. */
const [neededLooks, neededOnWindows] = [8, 48];

/** Of the time between two looks this part is not taken by looking alone. */
const computingPart = 0.5;

/** The looks of one who wants to know. */
export class Stillness {
  readonly #process = (globalThis as { process?: CountingProcess }).process;
  readonly #needed = this.#process?.platform === "win32" ? neededOnWindows : neededLooks;
  #computedMs: number | undefined;
  #looks = 0;

  /** What was seen before counts no more. */
  restart(): void {
    this.#computedMs = undefined;
    this.#looks = 0;
  }

  /**
   * Looks once more, at least so long after the last time. `computes` where something did since then; `still` once that was
   * not so for long enough.
   */
  look(afterMs: number): "computes" | "unsure" | "still" {
    const usage = this.#process?.cpuUsage?.();
    // Where nobody counts, nobody knows.
    if (usage === undefined) return "computes";
    const before = this.#computedMs;
    this.#computedMs = (usage.user + usage.system) / 1000;
    if (before === undefined) return "unsure";
    if (this.#computedMs - before > computingPart * afterMs) {
      this.#looks = 0;
      return "computes";
    }
    this.#looks++;
    return this.#looks < this.#needed ? "unsure" : "still";
  }
}
