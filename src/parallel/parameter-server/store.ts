/** The state of a server: the values, the optimizer's state, and counts of its work, all part of a checkpoint. */

import { invalid, textOf } from "../../api/option-kinds.ts";
import { isCount } from "../argument-checks.ts";
import { Optimizer } from "../optimizers/optimizer.ts";
import type { UpdateRule } from "../optimizers/rules.ts";
import type { ParameterArray, ParameterDType, ParameterSet } from "../parameter-set.ts";
import {
  type State,
  type Stateful,
  type StateTensor,
  type StateValue,
  tensorText,
} from "../state.ts";

/** The work of a server until its last worker left, including the servers before its checkpoint. */
export interface ServerReport {
  /** Pushes applied: the version of the values. */
  readonly accepted: number;
  /** Late pushes, with `reject`. */
  readonly rejected: number;
  /** Refused pushes: of a future version, not finite, or not pulled. */
  readonly refused: number;
  readonly largestStaleness: number;
  /** Requests that waited, with `block`. */
  readonly held: number;
}

const counts = ["accepted", "rejected", "refused", "largestStaleness", "held"] as const;

/** The values of a server, with its optimizer and counts. */
export class ServerStore implements Stateful {
  readonly set: ParameterSet;
  readonly #optimizer: Optimizer;
  readonly #report = { accepted: 0, rejected: 0, refused: 0, largestStaleness: 0, held: 0 };

  constructor(set: ParameterSet, rule: UpdateRule) {
    this.set = set;
    this.#optimizer = new Optimizer(set, rule);
  }

  /** Number of pushes applied. */
  get version(): number {
    return this.#report.accepted;
  }

  get report(): ServerReport {
    return { ...this.#report };
  }

  /** Applies a push; the version grows by one. */
  apply(gradients: ReadonlyMap<ParameterDType, ParameterArray>, staleness: number): void {
    for (const [dtype, array] of gradients) this.set.gradients(dtype).set(array);
    this.#optimizer.step();
    this.#report.accepted += 1;
    this.#report.largestStaleness = Math.max(this.#report.largestStaleness, staleness);
  }

  /** Counts a request that waited, was rejected or refused. */
  count(what: "rejected" | "refused" | "held"): void {
    this.#report[what] += 1;
  }

  /** Shares memory with the store. */
  state(): State {
    const optimizer = this.#optimizer.state();
    const prefixed = (prefix: string, tensors: State["tensors"]): [string, StateTensor][] =>
      Object.entries(tensors).map(([name, tensor]) => [`${prefix}/${name}`, tensor]);
    return {
      values: { ...this.#report, optimizer: optimizer.values },
      tensors: Object.fromEntries([
        ...prefixed("value", this.set.state().tensors),
        ...prefixed("optimizer", optimizer.tensors),
      ]),
    };
  }

  restore({ values, tensors }: State): void {
    for (const name of counts) {
      const found = values[name];
      if (isCount(found)) continue;
      throw invalid(
        "ParameterServer.restore",
        name,
        textOf(found),
        "a count, as the state of a ParameterServer has",
      );
    }
    const own = this.state().tensors;
    for (const name of new Set([...Object.keys(own), ...Object.keys(tensors)])) {
      const textIn = (all: State["tensors"]): string =>
        tensorText(Object.hasOwn(all, name) ? all[name] : undefined);
      const [found, needed] = [textIn(tensors), textIn(own)];
      if (found !== needed) throw invalid("ParameterServer.restore", name, found, needed);
    }
    const under = (prefix: string): State["tensors"] =>
      Object.fromEntries(
        Object.entries(tensors).flatMap(([name, tensor]) =>
          name.startsWith(prefix) ? [[name.slice(prefix.length), tensor]] : [],
        ),
      );
    // May still refuse another rule, before any change.
    this.#optimizer.restore({
      values: (values["optimizer"] ?? {}) as Record<string, StateValue>,
      tensors: under("optimizer/"),
    });
    this.set.restore({ values: {}, tensors: under("value/") });
    for (const name of counts) this.#report[name] = values[name] as number;
  }
}
