/** Points where the ranks of several processes wait for each other: NCCL's first message of a pair, and its windows. */
import type { NcclCalls } from "../../../src/backends/nccl/result/nccl.ts";
import { closeAfter } from "../opened.ts";
import { type Machine, ncclError } from "./machine.ts";
import type { State } from "./nccl-state.ts";

/** Counts of arrivals by rank, at one point, over and over. */
export class Comings {
  readonly #counts = new Map<string, number>();

  /** Counts an arrival; the returned function is true once each of the others has arrived as often. */
  come(who: string, others: readonly string[]): () => boolean {
    const count = (this.#counts.get(who) ?? 0) + 1;
    this.#counts.set(who, count);
    return () => others.every((other) => (this.#counts.get(other) ?? 0) >= count);
  }
}

/** One end of what a communicator waits in. */
export interface Waits {
  readonly aborted: boolean;
  /** The number of ranks that wait for it. */
  elsewhere: number;
}

/** Waits as NCCL does: until it is done, or the communicator was aborted. A wait that outlives its test stays open. */
export async function untilDone(end: Waits, cCall: string, isDone: () => boolean): Promise<void> {
  let isOver = false;
  closeAfter(async () => {
    isOver = true;
  });
  end.elsewhere += 1;
  do await new Promise((resolve) => (isOver ? undefined : setImmediate(resolve)));
  while (!isDone() && !end.aborted);
  end.elsewhere -= 1;
  if (end.aborted) throw ncclError(cCall, 3, "ncclInternalError");
}

/** The connecting calls. */
export function connectionCalls(
  machine: Machine,
  state: State,
): Pick<NcclCalls, "connectInBackground"> {
  return {
    async connectInBackground({ index }, { comm, stream, from, into }, ends) {
      const end = state.end(comm);
      const { clique, rank, device } = end;
      if (device !== index || machine.stream(stream).device !== index) {
        machine.complain("ranks are connected on another device");
      }
      for (const at of [from, into]) machine.memory.range(at, 1, device);
      const done = ends.map(({ direction, peer }) => {
        const way = direction === "send" ? [rank, peer] : [peer, rank];
        const other = direction === "send" ? "recv" : "send";
        return clique.comings.come(`${direction} ${way}`, [`${other} ${way}`]);
      });
      await untilDone(end, "ncclGroupEnd", () => done.every((each) => each()));
      for (const { direction, peer } of ends) {
        clique.connected.add(direction === "send" ? `${rank} ${peer}` : `${peer} ${rank}`);
      }
    },
  };
}
