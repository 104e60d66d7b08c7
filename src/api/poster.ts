/**
 * Posts the calls of one rank: has arguments checked, tells the hooks, keeps the books, and turns every refusal into
 * a rejected operation, so that a wrong call fails in one way whether or not it is awaited.
 */
import type { RankCall, Session } from "./backend.ts";
import type { CallOptions } from "./calls.ts";
import type { CollectiveName } from "./collectives/spec.ts";
import { CommAbortedError, CommClosedError, type CommError, UnsupportedError } from "./errors.ts";
import { HookList, type OpInfo } from "./hooks.ts";
import type { Ledger } from "./ledger/ledger.ts";
import type { CommOp } from "./op.ts";
import { type Prepared, rankCall } from "./prepared.ts";
import { Validator } from "./validate.ts";

/** What a rank's poster asks of its world. */
export interface PosterHost {
  /** Why this world rank may make no calls now; `undefined` when it may. */
  refusal(worldRank: number): string | undefined;
}

/** The way of one rank's calls to the ledger. */
export class Poster {
  readonly check: Validator;
  readonly hooks: HookList = new HookList();
  readonly worldRank: number;
  readonly facts: { readonly rank: number; readonly size: number; readonly comm: string };
  readonly #session: Session;
  readonly #ledger: Ledger;
  readonly #host: PosterHost;
  readonly #calls: Record<string, number> = {};
  #sendBytes = 0;
  #failures = 0;
  #closed = false;

  constructor(rank: number, ledger: Ledger, session: Session, host: PosterHost) {
    const { ranks, name } = ledger.comm;
    this.worldRank = ranks[rank] as number;
    this.facts = { rank, size: ranks.length, comm: name };
    this.check = new Validator(session, this.worldRank, this.facts);
    this.#session = session;
    this.#ledger = ledger;
    this.#host = host;
  }

  /** Checks a call and posts it. Never throws: what is wrong becomes the operation's rejection. */
  post<T>(
    collective: CollectiveName,
    options: CallOptions | undefined,
    prepare: () => Prepared<T>,
  ): CommOp<T> {
    try {
      this.assertOpen(collective);
      const prepared = prepare();
      this.#assertOptions(collective, options);
      this.check.supported(prepared.call.dtype, prepared.call.op);
      return this.#submit(collective, prepared, options?.signal) as CommOp<T>;
    } catch (error) {
      this.#failures++;
      return this.#ledger.refuse(this.facts.rank, error) as CommOp<T>;
    }
  }

  /** A call that is part of the contract and not built yet. */
  unbuilt<T>(name: string): CommOp<T> {
    const error = new UnsupportedError(
      { headline: `${name}: not built in this version`, hint: "the README lists what is" },
      this.facts,
    );
    this.#failures++;
    return this.#ledger.refuse(this.facts.rank, error) as CommOp<T>;
  }

  /** Throws when the communicator was closed, or when this rank makes no calls now. */
  assertOpen(action: string): void {
    const reason = this.#closed
      ? "the communicator was closed"
      : this.#host.refusal(this.worldRank);
    if (reason !== undefined) {
      throw new CommClosedError(
        { headline: `${action}: ${reason}, needs an open one` },
        this.facts,
      );
    }
  }

  stats(): { calls: Record<string, number>; sendBytes: number; failures: number } {
    return { calls: { ...this.#calls }, sendBytes: this.#sendBytes, failures: this.#failures };
  }

  /** Waits for what is pending, then refuses everything. Rethrows the first failure nobody has seen. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const { rank } = this.facts;
    const poison = this.#ledger.poison(rank);
    const outcomes = await Promise.allSettled(this.#ledger.pending(rank));
    if (poison !== undefined) throw poison;
    const failed = outcomes.find((outcome) => outcome.status === "rejected");
    if (failed !== undefined) throw failed.reason as CommError;
  }

  #submit<T>(
    collective: CollectiveName,
    prepared: Prepared<T>,
    signal: AbortSignal | undefined,
  ): CommOp {
    const nowPs = this.#session.clock?.now(this.worldRank) ?? 0;
    const { rank } = this.facts;
    const call = rankCall(collective, rank, prepared.call, nowPs);
    const info = this.hooks.idle ? undefined : this.#info(call);
    if (info !== undefined) this.hooks.posting(info);
    this.#calls[collective] = (this.#calls[collective] ?? 0) + 1;
    this.#sendBytes += call.send?.byteLength ?? 0;
    const { signature, resultOf } = prepared;
    const op = this.#ledger.post(rank, { call, signature, resultOf });
    if (info !== undefined) {
      op.whenSettled((error) => this.hooks.settled({ ...info, call: op.call }, error));
    }
    if (op.pending) this.#lend(call, op, signal);
    else if (op.status === "failed") this.#failures++;
    return op;
  }

  /** From now until it settles, the operation has the call's memory; reads of it wait. */
  #lend(call: RankCall, op: CommOp, signal: AbortSignal | undefined): void {
    if (call.send !== undefined) call.send.allocation.lastUse = op;
    if (call.recv !== undefined) call.recv.allocation.lastUse = op;
    if (signal === undefined) return;
    const cancel = (): void => {
      this.#ledger.cancel(op, this.#cancelled(call.collective, op.call, signal));
    };
    signal.addEventListener("abort", cancel, { once: true });
  }

  #assertOptions(collective: CollectiveName, options: CallOptions | undefined): void {
    this.check.options(options?.signal, options?.timeoutMs);
    if (options?.timeoutMs !== undefined) {
      throw new UnsupportedError(
        {
          headline: `${collective}: timeoutMs is not built in this version`,
          hint: "pass a signal instead",
        },
        this.facts,
      );
    }
    if (options?.signal?.aborted === true) throw this.#cancelled(collective, -1, options.signal);
  }

  #cancelled(collective: CollectiveName, call: number, signal: AbortSignal): CommAbortedError {
    return new CommAbortedError(
      { headline: `${collective}: cancelled by its signal before it was submitted` },
      { ...this.facts, collective, call, cause: signal.reason },
    );
  }

  #info(call: RankCall): OpInfo {
    const { comm, rank } = this.facts;
    return {
      comm,
      rank,
      call: -1,
      collective: call.collective,
      dtype: call.dtype,
      count: call.count,
    };
  }
}
