/**
 * The film of a call: which message is where at what virtual time, and what every rank holds meanwhile.
 *
 * The times are those of the trace of the real run; what a message carries is read off the plan's program.
 */
import { type Program, stepAt, type ValueId } from "twinccl/algorithms";
import type { TracedMessage } from "twinccl/sim";
import type { State } from "../state.ts";
import { Associations } from "./association.ts";
import { traits } from "./calls.ts";
import { type Change, changesOf, type Strip, stripOf, type Taken } from "./strip.ts";
import type { Structure } from "./structure.ts";

/** A message under way. Times are picoseconds. */
export interface Flight {
  readonly message: TracedMessage;
  /** Contributions that it carries, in the order of folding; of copies the ranks that they come from. */
  readonly order: readonly number[];
  /** Complete values, or copies. */
  readonly final: boolean;
}

/** Where and when a value was made first. */
export interface Birth {
  readonly rank: number;
  readonly atPs: number;
}

/** Everything that moves. */
export interface Film {
  readonly ranks: number;
  readonly endPs: number;
  /** By the time at which they leave. */
  readonly flights: readonly Flight[];
  /** Times at which messages arrive, each once. */
  readonly beats: readonly number[];
  readonly strips: readonly Strip[];
  readonly associations: Associations;
  readonly births: ReadonlyMap<ValueId, Birth>;
}

/** Joins a call's structure with the messages of its trace. */
export function filmOf(
  state: State,
  structure: Structure,
  messages: readonly TracedMessage[],
): Film {
  const { execution } = structure;
  const associations = new Associations(execution.values);
  const births = new Map<ValueId, Birth>();
  const changes: Change[][] = Array.from({ length: state.ranks }, () => []);
  for (const taken of stepsTaken(structure, messages)) {
    const { rank, atPs } = taken;
    for (const id of taken.made) {
      const making = associations.making(id);
      // The step that completes a value folds it too.
      for (const born of making.kind === "finish" ? [id, making.of.id] : [id]) {
        const birth = births.get(born);
        if (birth === undefined || atPs < birth.atPs) births.set(born, { rank, atPs });
      }
    }
    for (const change of changesOf(state, structure, taken, associations)) {
      changes[rank]?.push(change);
    }
  }
  const { reduces } = traits(state);
  const flights = messages.map((message): Flight => {
    const ids = [...execution.received(message.step)].filter((id) => id >= 0);
    const order = [...new Set(ids.flatMap((id) => associations.order(id)))];
    const final = ids.length > 0 && (!reduces || ids.every((id) => associations.isFinal(id)));
    return { message, order: order.length > 0 ? order : [message.from], final };
  });
  flights.sort((a, b) => a.message.sendStart - b.message.sendStart);
  return {
    ranks: state.ranks,
    endPs: messages.reduce((end, { recvEnd }) => Math.max(end, recvEnd), 0),
    flights,
    beats: [...new Set(messages.map(({ recvEnd }) => recvEnd))].sort((a, b) => a - b),
    strips: changes.map((own, rank) => stripOf(state, structure, rank, own)),
    associations,
    births,
  };
}

/** Every step, in the order of its lane: at the time at which the last message before it had arrived. */
function* stepsTaken(
  { program, execution }: Structure,
  messages: readonly TracedMessage[],
): Generator<Taken> {
  const arrivals = new Map(messages.map(({ step, recvEnd }) => [step, recvEnd]));
  const { starts, channels }: Program = program;
  for (let lane = 0; lane + 1 < starts.length; lane++) {
    let atPs = 0;
    for (let index = starts[lane] as number; index < (starts[lane + 1] as number); index++) {
      atPs = Math.max(atPs, arrivals.get(index) ?? 0);
      const made = [...execution.stepValues(index)].filter((id) => id >= 0);
      yield { rank: Math.floor(lane / channels), atPs, step: stepAt(program, index), made };
    }
  }
}
