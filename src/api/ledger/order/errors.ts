/** The errors of calls that ranks made in different orders. */
import type { CommInfo } from "../../backend.ts";
import { callText, type ErrorText, outliers, type Row, rankRows } from "../../error-text.ts";
import { type CallOrder, CallOrderError, type OrderedCall } from "../../errors.ts";
import { orderHint } from "../deadlock/report.ts";
import { type CallLabel, callFacts, type Termination } from "../failures.ts";

/** The text of an order that differs, and the errors of a communicator's ranks. */
export interface OrderErrors {
  readonly text: ErrorText;
  readonly errorOf: (comm: CommInfo) => Termination;
}

/** The effect of different orders. */
interface Effect {
  readonly what: string;
  readonly hint: string;
}

export const waiting: Effect = { what: "and would wait for each other for ever", hint: orderHint };

export const lucky: Effect = {
  what: "on different streams",
  hint: "NCCL does not promise that calls of two communicators run at the same time: make them in one order on all ranks",
};

export function orderErrors(orders: readonly CallOrder[], { what, hint }: Effect): OrderErrors {
  const ranks = oddRanks(orders);
  const headline = `${orderText(orders)}, ${what}`;
  const text: ErrorText = { headline, table: orderRows(orders), hint };
  const errorOf =
    ({ name, ranks: { length } }: CommInfo): Termination =>
    (rank, _, failed) =>
      new CallOrderError(textFor(text, failed), {
        ...{ rank, size: length, comm: name, ...callFacts(failed, name), ranks, orders },
      });
  return { text, errorOf };
}

/** The finding, with the communicators. */
export function orderText(orders: readonly CallOrder[]): string {
  const comms = new Set(orders.flatMap(({ calls }) => calls.map(({ comm }) => comm)));
  const names = [...comms].sort().map((name) => `"${name}"`);
  return `ranks made calls on ${names.join(" and ")} in different orders`;
}

/** The ranks that have not made a call of an order; else those with another order than most, and all while none is that of most. */
export function oddRanks(orders: readonly CallOrder[]): number[] {
  const late = orders.filter(({ calls }) => calls.some(({ isMissing }) => isMissing === true));
  if (late.length > 0) return late.map(({ rank }) => rank);
  const named = orders.map(({ calls }) => calls.map(callName).join(" before "));
  const odd = outliers(named);
  const isMost = 2 * odd.length < named.length;
  return isMost ? odd.map((at) => (orders[at] as CallOrder).rank) : orders.map(({ rank }) => rank);
}

/** A row for each rank. */
export function orderRows(orders: readonly CallOrder[]): Row[] {
  return rankRows(orders.map(({ rank, calls }) => ({ rank, cells: cellsOf(calls) })));
}

/** A call that is made later names itself. */
function textFor(text: ErrorText, failed: CallLabel | undefined): ErrorText {
  if (failed === undefined || failed.call >= 0) return text;
  return { ...text, headline: callText(failed) + text.headline };
}

function callName({ comm, collective, call }: OrderedCall): string {
  return `${collective}: call ${call} on "${comm}"`;
}

function cellsOf(calls: readonly OrderedCall[]): string[] {
  return calls.map((call, at) => {
    const place = call.place === undefined ? "" : ` at ${call.place}`;
    const later = call.isMissing === true ? ", not made yet" : "";
    return `${at === 0 ? "" : "before "}${callName(call)}${place}${later}`;
  });
}
