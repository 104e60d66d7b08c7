/**
 * Mutants: a program with a single operation changed.
 *
 * Each kind is a plausible mistake of an algorithm's author. Mutants are described before they are made,
 * so that a sample of very many can be drawn without making them all.
 */
import { type Program, type Step, stepAt, stepText } from "twinccl/algorithms";

/** The kinds of changes to one step. */
export const kinds = [
  "delete",
  "swap with the next",
  "duplicate",
  "receive from another",
  "send to another",
  "shift a read",
  "shift the write",
  "change a buffer",
  "change the span",
  "flip final",
  "drop the receive",
  "drop the read",
  "drop the store",
  "drop the send",
  "move to another lane",
] as const;

/** One of them. */
export type MutantKind = (typeof kinds)[number];

/** A mutant that can be made. */
export interface Mutant {
  readonly kind: MutantKind;
  /** The change, for people. */
  readonly text: string;
  make(): Program;
}

type Lanes = readonly (readonly Step[])[];

/** Where a step stands. */
interface Site {
  readonly lane: number;
  readonly at: number;
  readonly step: Step;
}

const none = -1;

/** Every mutant of a program, by kind. */
export function mutantsOf(program: Program): ReadonlyMap<MutantKind, readonly Mutant[]> {
  const lanes = unpack(program);
  const found = new Map<MutantKind, Mutant[]>(kinds.map((kind) => [kind, []]));
  const add = (kind: MutantKind, site: Site, text: string, change: (lanes: Step[][]) => void) => {
    const rank = Math.floor(site.lane / program.channels);
    found.get(kind)!.push({
      kind,
      text: `rank ${rank}, step ${site.at} (${stepText(site.step)}): ${text}`,
      make: () => {
        const changed = lanes.map((steps) => [...steps]);
        change(changed);
        return pack(program, changed);
      },
    });
  };
  for (const [lane, steps] of lanes.entries()) {
    for (const [at, step] of steps.entries()) {
      const site = { lane, at, step };
      for (const [kind, text, changed] of changedSteps(program, step)) {
        add(kind, site, text, (all) => all[lane]!.splice(at, 1, changed));
      }
      add("delete", site, "deleted", (all) => all[lane]!.splice(at, 1));
      add("duplicate", site, "taken twice", (all) => all[lane]!.splice(at, 0, step));
      const next = steps[at + 1];
      if (next !== undefined) {
        const text = `swapped with "${stepText(next)}"`;
        add("swap with the next", site, text, (all) => all[lane]!.splice(at, 2, next, step));
      }
      if (program.channels > 1) {
        const other = lane % program.channels === program.channels - 1 ? lane - 1 : lane + 1;
        add("move to another lane", site, `moved to lane ${other}`, (all) => {
          all[lane]!.splice(at, 1);
          all[other]!.splice(at, 0, step);
        });
      }
    }
  }
  return found;
}

type Change = readonly [MutantKind, string, Step];

/** The possible changes of a step. */
function changedSteps({ ranks }: Program, step: Step): Change[] {
  const changes: Change[] = [];
  const { from, to, span, final } = step;
  // A neighbour on either side, the rank across, and one that does not exist.
  const others = (peer: number): number[] => {
    const near = [peer + 1, peer + ranks - 1, peer + (ranks >> 1)].map((rank) => rank % ranks);
    return [...new Set([...near, ranks])].filter((rank) => rank !== peer);
  };
  if (from !== none) {
    for (const peer of others(from)) {
      changes.push(["receive from another", `from ${peer}`, { ...step, from: peer }]);
    }
  }
  if (to !== none) {
    for (const peer of others(to)) {
      changes.push(["send to another", `to ${peer}`, { ...step, to: peer }]);
    }
  }
  for (const field of ["read", "other", "write"] as const) {
    const ref = step[field];
    if (ref === none) continue;
    const kind = field === "write" ? "shift the write" : "shift a read";
    for (const by of [-1, 1]) {
      changes.push([kind, `${field} ${by}`, { ...step, [field]: ref + 4 * by }]);
    }
    for (const buffer of [0, 1, 2].filter((each) => each !== (ref & 3))) {
      const text = `${field} in buffer ${buffer}`;
      changes.push(["change a buffer", text, { ...step, [field]: ref - (ref & 3) + buffer }]);
    }
  }
  for (const by of [-1, 1]) {
    if (span + by < 0) continue;
    changes.push(["change the span", `span ${span + by}`, { ...step, span: span + by }]);
  }
  if (span > 0) changes.push(["flip final", `final ${!final}`, { ...step, final: !final }]);
  return [...changes, ...droppedHalves(step)];
}

/** A step that does two things without one of them. */
function droppedHalves(step: Step): Change[] {
  const changes: Change[] = [];
  const { from, to, read, write } = step;
  if (from !== none && (read !== none || step.span === 0)) {
    changes.push(["drop the receive", "receives nothing", { ...step, from: none }]);
  }
  if (from !== none && read !== none) {
    changes.push(["drop the read", "folds nothing", { ...step, read: none }]);
  }
  if (write !== none) changes.push(["drop the store", "stores nothing", { ...step, write: none }]);
  if (to !== none) changes.push(["drop the send", "sends nothing", { ...step, to: none }]);
  return changes;
}

function unpack(program: Program): Lanes {
  const { starts } = program;
  return Array.from({ length: starts.length - 1 }, (_, lane) => {
    const length = starts[lane + 1]! - starts[lane]!;
    return Array.from({ length }, (_, at) => stepAt(program, starts[lane]! + at));
  });
}

function pack(program: Program, lanes: Lanes): Program {
  const starts = new Int32Array(lanes.length + 1);
  lanes.forEach((steps, lane) => {
    starts[lane + 1] = starts[lane]! + steps.length;
  });
  const code = lanes.flat().flatMap(({ from, to, read, other, write, span, final }) => {
    return [from, to, read, other, write, span, Number(final)];
  });
  return { ...program, code: Int32Array.from(code), starts };
}
