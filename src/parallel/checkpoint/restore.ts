/** Gives the parts of a job the states that were read: all of them on all ranks, or none. */
import type { Communicator } from "../../api/index.ts";
import { CheckpointError } from "../errors.ts";
import type { RankStateful, State, Stateful, StateTensor } from "../state.ts";
import type { LoadedStates } from "./load.ts";
import { Fault, onAllRanks } from "./together.ts";

/** The parts of a job, by name. */
interface Parts {
  readonly shared: Readonly<Record<string, Stateful>>;
  readonly perRank?: Readonly<Record<string, RankStateful>> | undefined;
}

/**
 * Restores every part; where one refuses its state on any rank, all parts of all ranks get back what they had.
 *
 * As many ranks as wrote it may lie on a mesh of other extents. So where one of them refuses its own state, `everyRank` reads
 * those of all, and parts take theirs out of them.
 */
export async function restoreOnAllRanks(
  comm: Communicator,
  parts: Parts,
  loaded: LoadedStates,
  everyRank: () => Promise<LoadedStates | undefined>,
): Promise<void> {
  try {
    await attempt(comm, parts, loaded);
  } catch (refused) {
    const mayLieElsewhere = loaded.of === "own" && Object.keys(parts.perRank ?? {}).length > 0;
    if (!(refused instanceof CheckpointError) || !mayLieElsewhere) throw refused;
    try {
      await attempt(comm, parts, (await everyRank()) ?? loaded);
    } catch (again) {
      // The first refusal says more: it is of the states that were this rank's.
      throw again instanceof CheckpointError ? refused : again;
    }
  }
}

async function attempt(
  comm: Communicator,
  { shared, perRank = {} }: Parts,
  loaded: LoadedStates,
): Promise<void> {
  const { rank, size } = comm;
  const undo: (() => void)[] = [];
  const change = (name: string, part: Stateful, act: () => void): void => {
    const before = copyOf(part.state());
    try {
      act();
    } catch (error) {
      throw refusal(name, error);
    }
    undo.push(() => part.restore(before));
  };
  try {
    await onAllRanks(comm, "load", async () => {
      for (const [name, part] of Object.entries(shared)) {
        change(name, part, () => part.restore(loaded.shared[name] as State));
      }
      for (const [name, part] of Object.entries(perRank)) {
        const states = loaded.perRank.map((each) => each[name] as State);
        change(name, part, () => {
          if (loaded.of === "own") part.restore(states[0] as State);
          else part.reshard(states, rank, size);
        });
      }
      return "";
    });
  } catch (error) {
    for (const each of undo.toReversed()) each();
    throw error;
  }
}

function refusal(name: string, error: unknown): Fault {
  const why = error instanceof Error ? error.message.split("\n")[0] : String(error);
  const hint = "load it into parts like those that were saved; these are as they were before";
  return new Fault(`part "${name}" refuses its state: ${why}`, hint, error);
}

function copyOf({ values, tensors }: State): State {
  const copies = Object.entries(tensors).map(([name, tensor]): [string, StateTensor] => [
    name,
    { ...tensor, data: tensor.data.slice() },
  ]);
  return { values: structuredClone(values), tensors: Object.fromEntries(copies) };
}
