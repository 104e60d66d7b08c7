/**
 * Expert parallelism: every rank has some experts and some tokens. Tokens are sent to the experts they are routed to, and the
 * experts' outputs are sent back.
 *
 * An expert gets its rows in one order, by rank and then by token. So its outputs and the gradients of its parameters have the
 * bits of a run with all tokens on one rank, dropped tokens included.
 */

import type { Communicator, InvalidArgumentError } from "../../api/index.ts";
import {
  assertOptions,
  type Complete,
  invalid,
  type OptionKinds,
  textOf,
} from "../../api/option-kinds.ts";
import { typedArrayClass } from "../../api/typed-array.ts";
import { assertCommunicator, assertOneOf, factsOf, isCount } from "../argument-checks.ts";
import { gatherWords } from "../host-collectives.ts";
import { addScaled, zerosLike } from "../layers/layer.ts";
import {
  type ParameterArray,
  type ParameterDType,
  parameterDTypeOf,
  zerosOf,
} from "../parameter-set.ts";
import { assertSameOnRanks } from "../rank-comparison.ts";
import { type Part, partOf } from "../tensor/split.ts";
import { arrivalOrder, type Placement, placementOf } from "./placement.ts";
import type { Routes } from "./routing.ts";

/** Options of `ExpertParallel.create`; the same on every rank. */
export interface ExpertOptions {
  /** Number of experts of all ranks; in an uneven division the first ranks have one more. */
  readonly experts: number;
  /** Elements of a token. */
  readonly width: number;
  /** Most rows an expert takes in a step, of all ranks together; no limit when left out. */
  readonly capacity?: number | undefined;
  /** Of tokens; `float32` when left out. */
  readonly dtype?: ParameterDType | undefined;
}

const kinds: OptionKinds<ExpertOptions> = {
  ...{ experts: true, width: true, capacity: true, dtype: true },
};

/** Numbers of dropped and dispatched rows; all but `own` are the same on every rank. */
export interface Load {
  /** Rows that each expert got, of all ranks. */
  readonly rows: readonly number[];
  /** Dropped rows of each expert, of all ranks. */
  readonly dropped: readonly number[];
  /** Dropped rows of this rank's tokens. */
  readonly own: number;
}

/** The outputs for the tokens of a rank. */
export interface Combined {
  /** A row for every token: the weighted sum of its experts' outputs, zero where all were dropped. */
  readonly output: ParameterArray;
  /**
   * From the gradient by `output`, computes those by the outputs of this rank's experts and by the routes' weights. Collective.
   */
  backward(
    gradient: ParameterArray,
  ): Promise<{ outputs: ParameterArray[]; weights: ParameterArray }>;
}

/** Tokens at their experts. */
export interface Dispatched {
  /** An array of rows for each expert of this rank, which may be empty. */
  readonly rows: readonly ParameterArray[];
  readonly load: Load;
  /** Sends the experts' outputs back: as many elements for each expert as `rows` has. Collective. */
  combine(outputs: readonly ParameterArray[]): Promise<Combined>;
  /** From the gradients by `rows`, computes the one by the tokens of this rank. Collective. */
  backward(gradients: readonly ParameterArray[]): Promise<ParameterArray>;
}

/** Most experts: every dispatch gathers a number of rows for each. */
const maxExperts = 2 ** 20;

/** Sends tokens to experts. Made by `ExpertParallel.create`. */
export class ExpertParallel {
  /** The experts of this rank. */
  readonly own: Part;
  /** Elements of a token. */
  readonly width: number;
  readonly #comm: Communicator;
  readonly #options: Complete<ExpertOptions>;

  private constructor(comm: Communicator, options: Complete<ExpertOptions>) {
    this.#comm = comm;
    this.#options = options;
    this.width = options.width;
    this.own = partOf(options.experts, comm);
  }

  /**
   * Divides experts among the ranks of a communicator.
   *
   * - **Collective**: the same options on every rank. **Cost**: a comparison.
   *
   * @throws InvalidArgumentError on this rank for an invalid option.
   * @throws CollectiveMismatchError on all ranks for options that differ.
   * @example
   * const experts = await ExpertParallel.create(comm, { experts: 8, width: 64, capacity: 128 });
   */
  static async create(comm: Communicator, options: ExpertOptions): Promise<ExpertParallel> {
    assertCommunicator("ExpertParallel.create", comm);
    assertOptions("ExpertParallel.create", options, kinds);
    const { experts, width, capacity = Number.MAX_SAFE_INTEGER, dtype = "float32" } = options;
    for (const [field, value] of Object.entries({ experts, width, capacity })) {
      const most = field === "experts" ? maxExperts : Number.MAX_SAFE_INTEGER;
      if (isCount(value, 1) && value <= most) continue;
      const needed = field === "experts" ? `an integer in 1..${most}` : "an integer of at least 1";
      const [action, found] = ["ExpertParallel.create", textOf(value)];
      throw invalid(action, field, found, needed, undefined, factsOf(comm));
    }
    assertOneOf("ExpertParallel.create", "dtype", dtype, ["float32", "float64"], factsOf(comm));
    const settings = { experts, width, capacity, dtype };
    await assertSameOnRanks(comm, {
      action: "ExpertParallel.create",
      kind: "option",
      lines: new Map(Object.entries(settings).map(([name, value]) => [name, String(value)])),
      hint: "give every rank the same options",
    });
    return new ExpertParallel(comm, settings);
  }

  /**
   * Sends every token to the experts it is routed to; several dispatches may be under way at once.
   *
   * - **Collective**; each rank may pass any number of tokens, also none.
   * - **Capacity**: an expert takes rows of rank 0 first, in the order of tokens and choices, then of rank 1 and so on. Rows
   *   beyond the capacity are dropped: they are counted, and contribute to neither forward nor backward.
   * - **Cost**: an all-gather of 4 bytes for each expert, and an all-to-allv of the tokens; `combine` and each backward cost an
   *   all-to-allv more.
   *
   * @throws InvalidArgumentError on this rank for tokens of another dtype or without whole rows, or routes that do not fit
   * them. Also for routes with a missing expert, the same one twice, or a weight that is not finite.
   */
  async dispatch(tokens: ParameterArray, routes: Routes): Promise<Dispatched> {
    const { experts, width, capacity } = this.#options;
    this.#assertTokens(tokens);
    this.#assertRoutes(tokens.length / width, routes);
    const requested = new Array<number>(experts).fill(0);
    for (const expert of routes.experts) requested[expert] = (requested[expert] as number) + 1;
    const counts = await gatherWords(this.#comm, requested);
    const placement = placementOf(routes.experts, counts, capacity, this.#comm.rank);
    const { kept } = placement;
    const tokenOf = (row: number): number => Math.floor((kept[row] as number) / routes.choices);
    const sent = zerosLike(tokens, kept.length * width);
    for (let row = 0; row < kept.length; row++) {
      const from = tokenOf(row) * width;
      sent.set(tokens.subarray(from, from + width), row * width);
    }
    const rows = await this.#toExperts(placement, sent);
    const load: Load = {
      rows: requested.map((_, expert) =>
        placement.keptBy.reduce((sum, table) => sum + (table[expert] as number), 0),
      ),
      dropped: placement.dropped,
      own: routes.experts.length - kept.length,
    };
    return {
      rows,
      load,
      combine: (outputs) => this.#combine(placement, tokens.length / width, routes, outputs),
      backward: async (gradients) => {
        const back = await this.#fromExperts("backward", placement, gradients);
        const below = zerosLike(tokens, tokens.length);
        for (let row = 0; row < kept.length; row++) {
          addScaled(below, tokenOf(row) * width, 1, back, row * width, width);
        }
        return below;
      },
    };
  }

  async #combine(
    placement: Placement,
    tokens: number,
    { choices, weights }: Routes,
    outputs: readonly ParameterArray[],
  ): Promise<Combined> {
    const { width } = this.#options;
    const { kept } = placement;
    const back = await this.#fromExperts("combine", placement, outputs);
    const rowOf = new Int32Array(tokens * choices).fill(-1);
    for (let row = 0; row < kept.length; row++) rowOf[kept[row] as number] = row;
    const output = zerosLike(back, tokens * width);
    // In the order of choices, not of experts, as on one rank.
    for (const [pair, row] of rowOf.entries()) {
      if (row < 0) continue;
      const token = Math.floor(pair / choices);
      addScaled(output, token * width, weights[pair] as number, back, row * width, width);
    }
    return {
      output,
      backward: async (gradient) => {
        this.#assertTokens(gradient, tokens);
        const byRows = zerosLike(gradient, kept.length * width);
        const byWeights = zerosLike(gradient, weights.length);
        for (let row = 0; row < kept.length; row++) {
          const pair = kept[row] as number;
          const token = Math.floor(pair / choices) * width;
          let slope = 0;
          for (let i = 0; i < width; i++) {
            slope += (gradient[token + i] as number) * (back[row * width + i] as number);
          }
          byWeights[pair] = slope;
          addScaled(byRows, row * width, weights[pair] as number, gradient, token, width);
        }
        return { outputs: await this.#toExperts(placement, byRows), weights: byWeights };
      },
    };
  }

  /** Sends rows in the order of experts; returns those of this rank's experts, by expert. */
  async #toExperts(placement: Placement, sent: ParameterArray): Promise<ParameterArray[]> {
    const { width } = this.#options;
    const arrived = await this.#exchange(sent, placement.sendRows, placement.recvRows);
    const { order, rows } = arrivalOrder(placement);
    let at = 0;
    return rows.map((count) => {
      const own = zerosLike(arrived, count * width);
      for (let row = 0; row < count; row++) {
        const from = (order[at++] as number) * width;
        own.set(arrived.subarray(from, from + width), row * width);
      }
      return own;
    });
  }

  /** The reverse of `#toExperts`. */
  async #fromExperts(
    action: string,
    placement: Placement,
    given: readonly ParameterArray[],
  ): Promise<ParameterArray> {
    const { width, dtype } = this.#options;
    const { order, rows } = arrivalOrder(placement);
    if (!Array.isArray(given) || given.length !== rows.length) {
      const found = Array.isArray(given) ? `${given.length} of them` : textOf(given);
      const needed = `${rows.length}, one for each expert of this rank`;
      throw invalid(
        `ExpertParallel.${action}`,
        "arrays",
        found,
        needed,
        undefined,
        factsOf(this.#comm),
      );
    }
    const leaving = zerosOf(dtype, order.length * width);
    let at = 0;
    for (const [index, array] of given.entries()) {
      const count = rows[index] as number;
      const name = `expert ${this.own.begin + index}`;
      if (dtypeOf(array) !== dtype || array.length !== count * width) {
        throw invalid(
          `ExpertParallel.${action}`,
          name,
          lengthText(array),
          `${dtype} with ${count * width}`,
          undefined,
          factsOf(this.#comm),
        );
      }
      for (let row = 0; row < count; row++) {
        const to = (order[at++] as number) * width;
        leaving.set(array.subarray(row * width, (row + 1) * width), to);
      }
    }
    return await this.#exchange(leaving, placement.recvRows, placement.sendRows);
  }

  async #exchange(
    array: ParameterArray,
    sendRows: readonly number[],
    recvRows: readonly number[],
  ): Promise<ParameterArray> {
    const { width, dtype } = this.#options;
    const [sendCounts, recvCounts] = [sendRows, recvRows].map((rows) =>
      rows.map((each) => each * width),
    ) as [number[], number[]];
    const total = recvCounts.reduce((sum, each) => sum + each, 0);
    const send = this.#comm.alloc(dtype, array.length).copyFrom(array);
    const recv = this.#comm.alloc(dtype, total);
    try {
      await this.#comm.allToAllv({ send, recv, sendCounts, recvCounts });
      return await recv.toHost();
    } finally {
      send.dispose();
      recv.dispose();
    }
  }

  #assertTokens(tokens: ParameterArray, rows?: number): void {
    const { width, dtype } = this.#options;
    const fits = (length: number): boolean =>
      rows === undefined ? length % width === 0 : length === rows * width;
    if (dtypeOf(tokens) === dtype && fits(tokens.length)) return;
    const needed = `${dtype} with ${rows ?? "whole"} rows of ${width}`;
    const field = rows === undefined ? "tokens" : "gradient";
    throw invalid(
      "ExpertParallel.dispatch",
      field,
      lengthText(tokens),
      needed,
      undefined,
      factsOf(this.#comm),
    );
  }

  #assertRoutes(tokens: number, routes: Routes): void {
    const { choices, experts, weights } = routes ?? {};
    const refuse = (field: string, found: string, needed: string): InvalidArgumentError =>
      invalid("ExpertParallel.dispatch", field, found, needed, undefined, factsOf(this.#comm));
    if (!isCount(choices, 1)) {
      throw refuse("choices", textOf(choices), "an integer of at least 1");
    }
    if (typedArrayClass(experts) !== "Int32Array")
      throw refuse("experts", textOf(experts), "an Int32Array");
    if (dtypeOf(weights) === "something else") {
      throw refuse("weights", textOf(weights), "a Float32Array or Float64Array");
    }
    for (const [field, array] of Object.entries({ experts, weights })) {
      if (array.length === tokens * choices) continue;
      throw refuse(field, `${array.length} elements`, `${choices} for each of ${tokens} tokens`);
    }
    for (const [pair, expert] of experts.entries()) {
      if (!(expert >= 0 && expert < this.#options.experts)) {
        throw refuse(`experts[${pair}]`, String(expert), `0 to ${this.#options.experts - 1}`);
      }
      const first = pair - (pair % choices);
      if (experts.subarray(first, pair).includes(expert)) {
        throw refuse(`experts[${pair}]`, `${expert} a second time`, "other experts for a token");
      }
      if (!Number.isFinite(weights[pair])) {
        throw refuse(`weights[${pair}]`, String(weights[pair]), "a finite number");
      }
    }
  }
}

function dtypeOf(array: ParameterArray): string {
  return parameterDTypeOf(array) ?? "something else";
}

function lengthText(array: ParameterArray): string {
  const dtype = dtypeOf(array);
  return dtype === "something else" ? textOf(array) : `${dtype} with ${array.length} elements`;
}
