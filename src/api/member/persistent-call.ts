/** Calls with fixed arguments: checked once, started any number of times, as MPI's persistent requests. */
import { isReleased } from "../buffer.ts";
import type { CallOptions } from "../calls.ts";
import type { PersistentCall } from "../communicator.ts";
import { CommClosedError, type CommError, type InvalidArgumentError } from "../errors.ts";
import { type CommOp, failOp, Operation } from "../op.ts";
import { invalid, textOf } from "../option-kinds.ts";
import type { CachedCall, CollectedCall } from "./call-cache.ts";
import { neverRunsError } from "./call-collector.ts";
import type { Poster } from "./poster.ts";

/** Prepares the one call of a synchronous callback. */
export function prepareCall<T>(
  poster: Poster,
  callback: () => CommOp<T>,
  options: unknown,
): PersistentCall<T> {
  let returned: unknown;
  // The call itself is awaitable, and a callback that is collected must not return a promise.
  const run = (): void => {
    returned = callback();
    // An async callback awaits a call that never runs: its rejection would be unhandled.
    if (!(returned instanceof Operation)) Promise.resolve(returned).catch(() => undefined);
  };
  const { calls } = poster.collect(
    "prepare",
    typeof callback === "function" ? run : callback,
    options,
  );
  const [only] = calls;
  const fault = prepareFault(poster, calls, returned);
  const error = fault ?? neverRunsError(poster.facts, "prepare: a prepared", "call.start()");
  for (const { op } of calls) failOp(op, error);
  if (fault !== undefined || only === undefined) throw error;
  return new FixedCall<T>(poster, only);
}

/** The reason why the calls of a callback cannot be prepared. */
function prepareFault(
  { facts }: Poster,
  calls: readonly CollectedCall[],
  returned: unknown,
): InvalidArgumentError | undefined {
  const [only] = calls;
  const fault = (field: string, found: string, needed: string, hint?: string) =>
    invalid("prepare", field, found, needed, hint, facts);
  if (only === undefined || calls.length > 1) {
    return fault("call", `${calls.length} calls`, "one call", "capture records several");
  }
  if (returned instanceof Operation && returned !== only.op) {
    const hint = "prepare each call of a group, and start them in comm.group";
    return fault("call", "a callback that returned a group or another call", "its one call", hint);
  }
  if (returned !== only.op) {
    const found = returned instanceof Promise ? "a promise" : textOf(returned);
    return fault("call", `a callback that returned ${found}`, "() => comm.allReduce(…)");
  }
  const { collective, options } = only;
  if (collective === "split" || collective === "capture") {
    return fault("call", collective, "a collective or a message", "call it outside");
  }
  const [option, value] = Object.entries(options ?? {})[0] ?? [];
  if (option === undefined) return undefined;
  return fault(option, textOf(value), "none", `pass it to every start: call.start({ ${option} })`);
}

/** A prepared call of a rank. */
class FixedCall<T> implements PersistentCall<T> {
  readonly #poster: Poster;
  readonly #cached: CachedCall;

  constructor(poster: Poster, { collective, prepared }: CollectedCall) {
    this.#poster = poster;
    this.#cached = poster.cache.create(collective, prepared);
  }

  start(options?: CallOptions): Operation<T> {
    const poster = this.#poster;
    const refusal = this.#refusal(options);
    const { collective } = this.#cached;
    if (refusal === undefined) return poster.post(collective, options, undefined, this.#cached);
    return poster.post(collective, undefined, () => {
      throw refusal;
    });
  }

  #refusal(options: CallOptions | undefined): CommError | undefined {
    const { facts } = this.#poster;
    const { collective, first, second } = this.#cached;
    for (const allocation of [first, second]) {
      if (allocation === undefined || !isReleased(allocation)) continue;
      return new CommClosedError(
        {
          headline: `start: a buffer of the prepared ${collective} was ${allocation.disposed ? "disposed" : "transferred away"}`,
          hint: "prepare the call again with memory that stays",
        },
        { ...facts, collective },
      );
    }
    if (options === undefined) return undefined;
    if (typeof options !== "object" || options === null) {
      return invalid("start", "options", textOf(options), "an object", undefined, facts);
    }
    const { timeoutMs, signal, ...others } = options;
    const [name, value] = Object.entries(others)[0] ?? [];
    if (name === undefined) return undefined;
    const hint = "the arguments of a prepared call are fixed: prepare another one";
    return invalid("start", name, textOf(value), "timeoutMs or signal", hint, facts);
  }
}
