/** Splits of the fake NCCL: colors and keys are C's `int`s, and children are ordered by key, then by the parent's ranks. */
import { Clique, End } from "./clique.ts";
import type { Machine } from "./machine.ts";
import type { State } from "./nccl-state.ts";

/** `NCCL_SPLIT_NOCOLOR`. */
const noColor = -1;

/** A rank's arguments of a split, as C reads them. */
interface SplitRequest {
  readonly end: End;
  readonly color: number;
  readonly key: number;
}

/** Color and key as they arrive in C. */
export function splitRequest(
  machine: Machine,
  end: End,
  color: number | undefined,
  key: number,
): SplitRequest {
  const request = { end, color: (color ?? noColor) | 0, key: key | 0 };
  if (request.color < noColor) machine.complain(`a split has the color ${request.color}`);
  return request;
}

/** A split that is under way. */
export class Split {
  readonly #machine: Machine;
  readonly #state: State;
  readonly #requests: SplitRequest[] = [];
  readonly #children = new Map<SplitRequest, End>();
  readonly #cliques = new Map<number, Clique>();

  constructor(machine: Machine, state: State) {
    this.#machine = machine;
    this.#state = state;
  }

  /** All have come. */
  get isWhole(): boolean {
    return this.#requests.length === this.#requests[0]?.end.clique.size;
  }

  /** Adds a rank, which gets its handle in `child`. Returns the number of arrivals; the last one forms the children. */
  add(request: SplitRequest, child: BigUint64Array): number {
    const { end, color } = request;
    this.#requests.push(request);
    if (color !== noColor) child[0] = this.#createChild(request).handle;
    if (this.#requests.length === end.clique.size) {
      for (const [each, clique] of this.#cliques) clique.formed(this.#ordered(each));
    }
    return this.#requests.length;
  }

  #createChild(request: SplitRequest): End {
    const { end, color } = request;
    const clique = this.#cliques.get(color) ?? new Clique(this.#machine);
    this.#cliques.set(color, clique);
    const child = new End(clique, -1, end.device, this.#machine.newHandle(), end.process);
    this.#children.set(request, child);
    this.#state.ends.set(child.handle, child);
    return child;
  }

  #ordered(color: number): End[] {
    const members = this.#requests.filter((request) => request.color === color);
    members.sort((a, b) => a.key - b.key || a.end.rank - b.end.rank);
    return members.map((request) => this.#children.get(request) as End);
  }
}
