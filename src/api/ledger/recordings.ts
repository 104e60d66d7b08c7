/** Recordings of a communicator: the calls that a complete capture has, and the numbers by which ranks compare replays. */
import type { CallSet, CommInfo, RankCall } from "../backend.ts";

/** The recorded calls of a complete capture, each as a call of all ranks, in order; `undefined` when there are none, or messages among them. */
export function recordedSets({ comm, number, calls }: CallSet): CallSet[] | undefined {
  if (calls.some(({ recorded }) => recorded === undefined)) return undefined;
  const recorded = calls[0]?.recorded?.calls ?? [];
  if (recorded.length === 0) return undefined;
  return recorded.map(({ collective }, index): CallSet => {
    const ofRanks = calls.map(({ recorded }) => recorded?.calls[index] as RankCall);
    const cache = { planned: undefined, repeat: undefined };
    return { comm, number, collective, calls: ofRanks, cache };
  });
}

const graphNumbers = new WeakMap<object, number>();
const graphsMade = new WeakMap<CommInfo, number>();

/**
 * Numbers a recording among those of its communicator: ranks compare which one they replay. Other communicators do not
 * count, of which processes may have different ones.
 */
export function numberGraph(comm: CommInfo, graph: object): void {
  const number = (graphsMade.get(comm) ?? 0) + 1;
  graphsMade.set(comm, number);
  graphNumbers.set(graph, number);
}

/** The number of a recording. */
export function graphNumber(graph: object): number | undefined {
  return graphNumbers.get(graph);
}
