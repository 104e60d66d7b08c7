/** Records the calls that a session is given as repeats: first calls of a submission, and calls that are appended to one. */
import type { QueueingSession, RepeatedCall } from "twinccl/backend";

/** The repeated calls of a session so far. */
export interface WatchedRepeats {
  /** Numbers of all repeated calls, in their order. */
  readonly numbers: readonly number[];
  /** The numbers of calls that began a submission, and that were appended to one, since the last count. */
  count(): readonly [alone: number, appended: number];
}

/** Watches a session from now on. `skipAppended` leaves out the work of appended calls. */
export function watchRepeats(session: QueueingSession, skipAppended = false): WatchedRepeats {
  const numbers: number[] = [];
  let [alone, appended] = [0, 0];
  const watched = (repeat: RepeatedCall): RepeatedCall => ({
    submit(number, completion) {
      numbers.push(number);
      if (completion.acceptsMore) appended++;
      else alone++;
      if (completion.acceptsMore && skipAppended) return;
      repeat.submit(number, completion);
    },
  });
  const submit = session.submit.bind(session);
  session.submit = (work, completion) => {
    submit(work, completion);
    if (work.cache?.repeat === undefined) return;
    work.cache.repeat = watched(work.cache.repeat);
  };
  return {
    numbers,
    count() {
      const found = [alone, appended] as const;
      [alone, appended] = [0, 0];
      return found;
    },
  };
}
