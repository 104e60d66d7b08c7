/** What ranks have not sent so far (`topK`), as state: by parameter, so that buckets may be cut differently later. */
import { InvalidArgumentError } from "../../api/index.ts";
import type { ParameterArray } from "../parameter-set.ts";
import type { State, StateTensor } from "../state.ts";
import type { Lane } from "./backward.ts";

/** The residuals of all parameters; none where everything is sent. */
export function residualState(lanes: readonly Lane[]): Record<string, StateTensor> {
  return Object.fromEntries(
    residualsOf(lanes).map(({ name, dtype, shape, data }) => [name, { dtype, shape, data }]),
  );
}

/** Takes over residuals; parameters that the state has none of start without. */
export function restoreResiduals(lanes: readonly Lane[], state: State): void {
  const mine = residualsOf(lanes);
  for (const { name, dtype, data } of mine) {
    const found = state.tensors[name];
    if (found === undefined || (found.dtype === dtype && found.data.length === data.length))
      continue;
    throw new InvalidArgumentError(
      {
        headline: `restore: residual of "${name}": found ${found.dtype} of ${found.data.length}, needs ${dtype} of ${data.length}`,
      },
      { field: name },
    );
  }
  for (const { name, data } of mine) {
    const found = state.tensors[name];
    if (found === undefined) data.fill(0);
    else data.set(found.data as ParameterArray);
  }
}

/** The state of one of `size` ranks, made of those of another number of ranks: what nobody sent is owed further on. */
export function sumOfResiduals(states: readonly State[], rank: number, size: number): State {
  const [first] = states;
  const tensors: Record<string, StateTensor> = {};
  for (const { tensors: theirs } of states.filter((_, at) => at % size === rank)) {
    for (const [name, { dtype, shape, data }] of Object.entries(theirs)) {
      const sum = (tensors[name]?.data ?? data.slice().fill(0 as never)) as ParameterArray;
      for (let at = 0; at < sum.length; at++) {
        sum[at] = (sum[at] as number) + ((data as ParameterArray)[at] as number);
      }
      tensors[name] = { dtype, shape, data: sum };
    }
  }
  return { values: first?.values ?? {}, tensors };
}

function residualsOf(lanes: readonly Lane[]): (StateTensor & {
  readonly name: string;
  readonly data: ParameterArray;
})[] {
  return lanes.flatMap(({ bucket, exchange }) =>
    exchange.residual === undefined
      ? []
      : bucket.parameters.map(({ parameter: { name, dtype, shape, length }, begin }) => {
          const data = (exchange.residual as ParameterArray).subarray(begin, begin + length);
          return { name, dtype, shape, data };
        }),
  );
}
