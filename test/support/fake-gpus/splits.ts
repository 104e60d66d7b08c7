/** Splits of the fake NCCL: colors and keys are C's `int`s, and children are ordered by key, then by the parent's ranks. */
import { Clique, End } from "./clique.ts";
import type { Machine } from "./machine.ts";
import type { State } from "./nccl-state.ts";

/** `NCCL_SPLIT_NOCOLOR`. */
const noColor = -1;

/** A rank's arguments of a split, as C reads them. */
interface Wish {
  readonly end: End;
  readonly color: number;
  readonly key: number;
}

/** Color and key as they arrive in C. */
export function wishAsC(machine: Machine, end: End, color: number | undefined, key: number): Wish {
  const wish = { end, color: (color ?? noColor) | 0, key: key | 0 };
  if (wish.color < noColor) machine.complain(`a split has the color ${wish.color}`);
  return wish;
}

/** A split that is under way. */
export class Split {
  readonly #machine: Machine;
  readonly #state: State;
  readonly #wishes: Wish[] = [];
  readonly #made = new Map<Wish, End>();
  readonly #cliques = new Map<number, Clique>();

  constructor(machine: Machine, state: State) {
    this.#machine = machine;
    this.#state = state;
  }

  /** All have come. */
  get isWhole(): boolean {
    return this.#wishes.length === this.#wishes[0]?.end.clique.size;
  }

  /** Adds a rank, which gets its handle in `child`. Returns the number of arrivals; the last one forms the children. */
  add(wish: Wish, child: BigUint64Array): number {
    const { end, color } = wish;
    this.#wishes.push(wish);
    if (color !== noColor) child[0] = this.#make(wish).handle;
    if (this.#wishes.length === end.clique.size) {
      for (const [each, clique] of this.#cliques) clique.formed(this.#ordered(each));
    }
    return this.#wishes.length;
  }

  #make(wish: Wish): End {
    const { end, color } = wish;
    const clique = this.#cliques.get(color) ?? new Clique(this.#machine);
    this.#cliques.set(color, clique);
    const made = new End(clique, -1, end.device, this.#machine.newHandle(), end.process);
    this.#made.set(wish, made);
    this.#state.ends.set(made.handle, made);
    return made;
  }

  #ordered(color: number): End[] {
    const members = this.#wishes.filter((wish) => wish.color === color);
    members.sort((a, b) => a.key - b.key || a.end.rank - b.end.rank);
    return members.map((wish) => this.#made.get(wish) as End);
  }
}
