/** One direction of a rank's connection: it carries one message at a time. */

/** When a port is in use, in picoseconds. */
export class Port {
  /** Starts and ends in turn, ascending; spans that touch are one. */
  readonly #busy: number[] = [];

  /** The first time from `fromPs` on at which the port is free for so long. */
  freeFrom(fromPs: number, durationPs: number): number {
    let start = fromPs;
    for (let i = 0; i < this.#busy.length; i += 2) {
      if (start + durationPs <= (this.#busy[i] as number)) break;
      start = Math.max(start, this.#busy[i + 1] as number);
    }
    return start;
  }

  /** Uses the port at a time at which it is free. */
  take(startPs: number, durationPs: number): void {
    if (durationPs === 0) return;
    const busy = this.#busy;
    let at = 0;
    while (at < busy.length && (busy[at] as number) < startPs) at += 2;
    const joinsBefore = at > 0 && busy[at - 1] === startPs;
    const joinsAfter = busy[at] === startPs + durationPs;
    const added = [startPs, startPs + durationPs];
    if (joinsBefore && joinsAfter) busy.splice(at - 1, 2);
    else if (joinsBefore) busy[at - 1] = startPs + durationPs;
    else if (joinsAfter) busy[at] = startPs;
    else busy.splice(at, 0, ...added);
  }
}
