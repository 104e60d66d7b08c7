/**
 * One rank's end of a communicator, written once for all backends: has the arguments checked, posts the call to the
 * ledger, and answers what needs no other rank.
 */
import type { Capabilities, Session } from "./backend.ts";
import { assertShape, DeviceBuffer } from "./buffer.ts";
import type * as calls from "./calls.ts";
import { prepareAllReduce } from "./collectives/all-reduce.ts";
import { prepareAllToAll } from "./collectives/all-to-all.ts";
import { prepareAllToAllv } from "./collectives/all-to-allv.ts";
import { prepareBarrier } from "./collectives/barrier.ts";
import { prepareBroadcast } from "./collectives/broadcast.ts";
import type { AllocOptions, CommStats, Communicator, Graph } from "./communicator.ts";
import { bytesOf, type DType } from "./dtype.ts";
import { InvalidArgumentError, UnsupportedError } from "./errors.ts";
import type { Explanation, Question } from "./explanation.ts";
import type { HookList } from "./hooks.ts";
import type { Ledger } from "./ledger/ledger.ts";
import type { CommOp } from "./op.ts";
import { Poster, type PosterHost } from "./poster.ts";

/** What a member asks of its world. */
export interface MemberHost extends PosterHost {
  abort(reason: unknown): void;
}

/** The Communicator of one rank. */
export class Member implements Communicator {
  readonly rank: number;
  readonly size: number;
  readonly name: string;
  readonly hooks: HookList;
  readonly #session: Session;
  readonly #host: MemberHost;
  readonly #poster: Poster;

  constructor(rank: number, ledger: Ledger, session: Session, host: MemberHost) {
    this.rank = rank;
    this.size = ledger.comm.ranks.length;
    this.name = ledger.comm.name;
    this.#session = session;
    this.#host = host;
    this.#poster = new Poster(rank, ledger, session, host);
    this.hooks = this.#poster.hooks;
  }

  get backend(): string {
    return this.#session.backend;
  }

  get device(): string {
    return this.#session.device(this.#poster.worldRank);
  }

  get capabilities(): Capabilities {
    return this.#session.capabilities;
  }

  alloc<D extends DType>(dtype: D, length: number, options: AllocOptions = {}): DeviceBuffer<D> {
    this.#poster.assertOpen("alloc");
    assertShape("alloc", dtype, length);
    if (options.symmetric === true) {
      throw new UnsupportedError(
        { headline: `alloc: ${this.backend} has no symmetric memory in this version` },
        this.#poster.facts,
      );
    }
    const session = this.#session;
    const rank = this.#poster.worldRank;
    const memory = session.allocate(rank, length * bytesOf(dtype));
    return new DeviceBuffer(dtype, length, {
      memory,
      rank,
      session,
      disposed: false,
      lastUse: undefined,
    });
  }

  allReduce<S extends calls.Data, R extends calls.Data = S>(
    args: calls.AllReduceArgs<S, R>,
  ): CommOp<R> {
    return this.#poster.post("allReduce", args, () => prepareAllReduce(this.#poster.check, args));
  }

  broadcast<S extends calls.Data, R extends calls.Data = S>(
    args: calls.BroadcastArgs<S, R>,
  ): CommOp<R> {
    return this.#poster.post("broadcast", args, () =>
      prepareBroadcast(this.#poster.check, args, this.rank),
    );
  }

  allToAll<S extends calls.Data, R extends calls.Data = S>(
    args: calls.AllToAllArgs<S, R>,
  ): CommOp<R> {
    return this.#poster.post("allToAll", args, () =>
      prepareAllToAll(this.#poster.check, args, this.size),
    );
  }

  allToAllv<S extends calls.Data, R extends calls.Data = DeviceBuffer<calls.DTypeOf<S>>>(
    args: calls.AllToAllvArgs<S, R>,
  ): CommOp<calls.AllToAllvResult<R>> {
    return this.#poster.post("allToAllv", args, () => prepareAllToAllv(this.#poster.check, args));
  }

  barrier(args: calls.CallOptions = {}): CommOp<void> {
    return this.#poster.post("barrier", args, () => prepareBarrier(this.#poster.check));
  }

  reduce<S extends calls.Data, R extends calls.Data = S>(
    _args: calls.ReduceArgs<S, R>,
  ): CommOp<R | undefined> {
    return this.#poster.unbuilt("reduce");
  }

  allGather<S extends calls.Data, R extends calls.Data = S>(
    _args: calls.AllGatherArgs<S, R>,
  ): CommOp<R> {
    return this.#poster.unbuilt("allGather");
  }

  allGatherv<S extends calls.Data, R extends calls.Data = S>(
    _args: calls.AllGathervArgs<S, R>,
  ): CommOp<R> {
    return this.#poster.unbuilt("allGatherv");
  }

  reduceScatter<S extends calls.Data, R extends calls.Data = S>(
    _args: calls.ReduceScatterArgs<S, R>,
  ): CommOp<R> {
    return this.#poster.unbuilt("reduceScatter");
  }

  reduceScatterv<S extends calls.Data, R extends calls.Data = S>(
    _args: calls.ReduceScattervArgs<S, R>,
  ): CommOp<R> {
    return this.#poster.unbuilt("reduceScatterv");
  }

  gather<S extends calls.Data, R extends calls.Data = S>(
    _args: calls.GatherArgs<S, R>,
  ): CommOp<R | undefined> {
    return this.#poster.unbuilt("gather");
  }

  scatter<S extends calls.Data, R extends calls.Data = S>(
    _args: calls.ScatterArgs<S, R>,
  ): CommOp<R> {
    return this.#poster.unbuilt("scatter");
  }

  send<S extends calls.Data>(_args: calls.SendArgs<S>): CommOp<void> {
    return this.#poster.unbuilt("send");
  }

  recv<R extends calls.Data>(_args: calls.RecvArgs<R>): CommOp<R> {
    return this.#poster.unbuilt("recv");
  }

  sendRecv<S extends calls.Data, R extends calls.Data = S>(
    _args: calls.SendRecvArgs<S, R>,
  ): CommOp<R> {
    return this.#poster.unbuilt("sendRecv");
  }

  group(_calls: () => void): CommOp<void> {
    return this.#poster.unbuilt("group");
  }

  split(_args: calls.SplitArgs): CommOp<Communicator | undefined> {
    return this.#poster.unbuilt("split");
  }

  capture(_calls: () => void): CommOp<Graph> {
    return this.#poster.unbuilt("capture");
  }

  explain(question: Question): Explanation {
    return this.#session.explain(question);
  }

  supports(question: Question): boolean {
    return this.#session.refusal(question) === undefined;
  }

  stats(): CommStats {
    return this.#poster.stats();
  }

  work(durationNs: number, label?: string): void {
    if (typeof durationNs !== "number" || !(durationNs >= 0) || durationNs === Infinity) {
      throw new InvalidArgumentError(
        {
          headline: `work: durationNs: found ${String(durationNs)}, needs a finite number of at least 0`,
        },
        { ...this.#poster.facts, field: "durationNs" },
      );
    }
    this.#session.clock?.work(this.#poster.worldRank, durationNs, label);
  }

  close(): Promise<void> {
    return this.#poster.close();
  }

  abort(reason?: unknown): void {
    this.#host.abort(reason);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
