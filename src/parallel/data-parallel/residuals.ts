/** Gradients that ranks have not sent so far (`topK`), as state: by parameter, so that buckets may be cut differently later. */

import { invalid } from "../../api/option-kinds.ts";
import type { ParameterArray } from "../parameter-set.ts";
import type { State, StateTensor } from "../state.ts";
import type { ActiveBucket } from "./backward.ts";

/** The residuals of all parameters; none where everything is sent. */
export function residualState(buckets: readonly ActiveBucket[]): Record<string, StateTensor> {
  return Object.fromEntries(
    residualsOf(buckets).map(({ name, dtype, shape, data }) => [name, { dtype, shape, data }]),
  );
}

/**
 * Takes over residuals; parameters that the state has none of start without.
 *
 * @throws InvalidArgumentError for one of another dtype or shape, or one that would be lost here; nothing is changed.
 */
export function restoreResiduals(buckets: readonly ActiveBucket[], state: State): void {
  const mine = new Map(residualsOf(buckets).map((each) => [each.name, each]));
  for (const [name, found] of Object.entries(state.tensors)) {
    const own = mine.get(name);
    const needs = own === undefined ? "none" : text(own);
    const isOwed = found.data.some((each) => Number(each) !== 0);
    if (text(found) === needs || (own === undefined && !isOwed)) continue;
    throw invalid(
      "restore",
      `residual of "${name}"`,
      text(found),
      needs,
      own === undefined
        ? "it would be lost: create the trainer with the parameter and a topK, as the saved one was"
        : "it is owed to the parameter as it was",
      { field: name },
    );
  }
  const found = new Map(Object.entries(state.tensors));
  for (const [name, { data }] of mine) {
    const owed = found.get(name);
    if (owed === undefined) data.fill(0);
    else data.set(owed.data as ParameterArray);
  }
}

function text({ dtype, shape, data }: StateTensor): string {
  return `${dtype} [${shape.join(", ")}] of ${data.length}`;
}

/** The state of one of `size` ranks, made of those of another number of ranks: unsent gradients are owed further on. */
export function sumOfResiduals(states: readonly State[], rank: number, size: number): State {
  const [first] = states;
  const sums = new Map<string, StateTensor>();
  for (const { tensors } of states.filter((_, at) => at % size === rank)) {
    for (const [name, { dtype, shape, data }] of Object.entries(tensors)) {
      const sum = (sums.get(name)?.data ?? data.slice().fill(0 as never)) as ParameterArray;
      for (let at = 0; at < sum.length; at++) {
        sum[at] = (sum[at] as number) + ((data as ParameterArray)[at] as number);
      }
      sums.set(name, { dtype, shape, data: sum });
    }
  }
  return { values: first?.values ?? {}, tensors: Object.fromEntries(sums) };
}

function residualsOf(buckets: readonly ActiveBucket[]): (StateTensor & {
  readonly name: string;
  readonly data: ParameterArray;
})[] {
  return buckets.flatMap(({ bucket, exchange }) =>
    exchange.residual === undefined
      ? []
      : bucket.parameters.map(({ parameter: { name, dtype, shape, length }, begin }) => {
          const data = (exchange.residual as ParameterArray).subarray(begin, begin + length);
          return { name, dtype, shape, data };
        }),
  );
}
