/**
 * Checks now and then for errors in the background while no wait is open: else a lost network or GPU would be
 * found by the next call, perhaps much later. Keeps no process alive.
 */

/** The pause between two looks, in milliseconds. One costs a call of NCCL per communicator. */
const defaultEveryMs = 1000;

/** Looks until it is ended. */
export class IdleWatch {
  readonly #timer: NodeJS.Timeout;

  constructor(look: () => void, everyMs = defaultEveryMs) {
    this.#timer = setInterval(look, everyMs).unref();
  }

  end(): void {
    clearInterval(this.#timer);
  }
}
