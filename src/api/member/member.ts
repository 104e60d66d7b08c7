/**
 * One rank of a communicator, shared by all backends. It checks arguments, posts calls to the ledger, and answers requests that
 * need no other rank.
 */
import type { Capabilities, CommInfo, Session } from "../backend.ts";
import { assertAddress, assertShape, bufferOver, type DeviceBuffer } from "../buffer.ts";
import type * as calls from "../calls.ts";
import { prepareAllGather } from "../collectives/all-gather.ts";
import { prepareAllGatherv } from "../collectives/all-gatherv.ts";
import { prepareAllReduce } from "../collectives/all-reduce.ts";
import { prepareAllToAll } from "../collectives/all-to-all.ts";
import { prepareAllToAllv } from "../collectives/all-to-allv.ts";
import { prepareBarrier } from "../collectives/barrier.ts";
import { prepareBroadcast } from "../collectives/broadcast.ts";
import { prepareGather } from "../collectives/gather.ts";
import { prepareRecv, prepareSend, prepareSendRecv } from "../collectives/point-to-point.ts";
import { prepareReduce } from "../collectives/reduce.ts";
import { prepareReduceScatter } from "../collectives/reduce-scatter.ts";
import { prepareReduceScatterv } from "../collectives/reduce-scatterv.ts";
import { prepareScatter } from "../collectives/scatter.ts";
import { prepareSplit } from "../collectives/split.ts";
import type {
  AllocOptions,
  CommStats,
  Communicator,
  Graph,
  PersistentCall,
} from "../communicator.ts";
import { bytesOf, type DType } from "../dtype.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import { assertQuestion, type Explanation, type Question } from "../explanation.ts";
import type { HookList } from "../hooks.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { CommOp } from "../op.ts";
import { assertOptions, invalid, textOf } from "../option-kinds.ts";
import { postCapture, postGroup } from "./graphs.ts";
import { prepareCall } from "./persistent-call.ts";
import { Poster } from "./poster.ts";

/** Requests of a rank to the world of its communicator. */
export interface CommRequests {
  /** Ends the communicator on all its ranks. */
  abort(reason: unknown): void;
  /** The rank has closed its end, and its calls are done. */
  closed(): void;
}

/** Most work of one call, 11 days: virtual time stays finite. */
const mostWorkNs = 1e15;

/** The Communicator of one rank. */
export class Member implements Communicator {
  readonly rank: number;
  readonly size: number;
  readonly name: string;
  readonly hooks: HookList;
  readonly #comm: CommInfo;
  readonly #session: Session;
  readonly #requests: CommRequests;
  readonly #poster: Poster;

  constructor(rank: number, ledger: Ledger, requests: CommRequests) {
    this.rank = rank;
    this.size = ledger.comm.ranks.length;
    this.name = ledger.comm.name;
    this.#comm = ledger.comm;
    this.#session = ledger.session;
    this.#requests = requests;
    this.#poster = new Poster(rank, ledger, () => requests.closed());
    this.hooks = this.#poster.hooks;
  }

  get localRanks(): readonly number[] {
    return this.#comm.local;
  }

  get backend(): string {
    return this.#session.info.backend;
  }

  get device(): string {
    return this.#session.device(this.#poster.worldRank).name;
  }

  get stream(): bigint | undefined {
    return this.#session.device(this.#poster.worldRank).streamOf(this.#comm);
  }

  get capabilities(): Capabilities {
    return this.#session.info.capabilities;
  }

  alloc<D extends DType>(dtype: D, length: number, options: AllocOptions = {}): DeviceBuffer<D> {
    this.#poster.assertOpen("alloc");
    assertShape("alloc", dtype, length);
    const symmetric = this.#wantsSymmetric(options);
    const session = this.#session;
    const rank = this.#poster.worldRank;
    const memory = session.device(rank).allocate(length * bytesOf(dtype), symmetric);
    return bufferOver(dtype, length, memory, { rank, session, symmetric });
  }

  adopt<D extends DType>(ptr: bigint, dtype: D, length: number): DeviceBuffer<D> {
    this.#poster.assertOpen("adopt");
    assertShape("adopt", dtype, length);
    assertAddress(ptr, dtype, this.#poster.facts);
    const session = this.#session;
    const rank = this.#poster.worldRank;
    const memory = session.device(rank).adopt(ptr, length * bytesOf(dtype));
    if (memory !== undefined) {
      return bufferOver(dtype, length, memory, { rank, session });
    }
    throw new UnsupportedError(
      {
        headline: `adopt: the ranks of ${this.backend} have no device memory`,
        hint: "memory of this process is a TypedArray: pass it in calls as it is, or alloc(...).copyFrom(array)",
      },
      { ...this.#poster.facts, field: "ptr" },
    );
  }

  allReduce<S extends calls.Data, R extends calls.Data | undefined = S>(
    args: calls.AllReduceArgs<S, R>,
  ): CommOp<calls.Received<R, S>> {
    return this.#poster.post("allReduce", args, prepareAllReduce);
  }

  broadcast<S extends calls.Data, R extends calls.Data | undefined = S>(
    args: calls.BroadcastArgs<S, R>,
  ): CommOp<calls.Received<R, S>> {
    return this.#poster.post("broadcast", args, prepareBroadcast);
  }

  allToAll<S extends calls.Data, R extends calls.Data = S>(
    args: calls.AllToAllArgs<S, R>,
  ): CommOp<R> {
    return this.#poster.post("allToAll", args, prepareAllToAll);
  }

  allToAllv<S extends calls.Data, R extends calls.Data | undefined = undefined>(
    args: calls.AllToAllvArgs<S, R>,
  ): CommOp<calls.AllToAllvResult<calls.Received<R, DeviceBuffer<calls.DTypeOf<S>>>>> {
    return this.#poster.post("allToAllv", args, prepareAllToAllv);
  }

  barrier(args: calls.CallOptions = {}): CommOp<void> {
    return this.#poster.post("barrier", args, prepareBarrier);
  }

  reduce<S extends calls.Data, R extends calls.Data | undefined = S>(
    args: calls.ReduceArgs<S, R>,
  ): CommOp<calls.Received<R, S> | undefined> {
    return this.#poster.post("reduce", args, prepareReduce);
  }

  allGather<S extends calls.Data, R extends calls.Data = S>(
    args: calls.AllGatherArgs<S, R>,
  ): CommOp<R> {
    return this.#poster.post("allGather", args, prepareAllGather);
  }

  allGatherv<S extends calls.Data, R extends calls.Data = S>(
    args: calls.AllGathervArgs<S, R>,
  ): CommOp<R> {
    return this.#poster.post("allGatherv", args, prepareAllGatherv);
  }

  reduceScatter<S extends calls.Data, R extends calls.Data = S>(
    args: calls.ReduceScatterArgs<S, R>,
  ): CommOp<R> {
    return this.#poster.post("reduceScatter", args, prepareReduceScatter);
  }

  reduceScatterv<S extends calls.Data, R extends calls.Data = S>(
    args: calls.ReduceScattervArgs<S, R>,
  ): CommOp<R> {
    return this.#poster.post("reduceScatterv", args, prepareReduceScatterv);
  }

  gather<S extends calls.Data, R extends calls.Data | undefined = S>(
    args: calls.GatherArgs<S, R>,
  ): CommOp<R | undefined> {
    return this.#poster.post("gather", args, prepareGather);
  }

  scatter<S extends calls.Data, R extends calls.Data = S>(
    args: calls.ScatterArgs<S, R>,
  ): CommOp<R> {
    return this.#poster.post("scatter", args, prepareScatter);
  }

  send<S extends calls.Data>(args: calls.SendArgs<S>): CommOp<void> {
    return this.#poster.post("send", args, prepareSend);
  }

  recv<R extends calls.Data>(args: calls.RecvArgs<R>): CommOp<R> {
    return this.#poster.post("recv", args, prepareRecv);
  }

  sendRecv<S extends calls.Data, R extends calls.Data = S>(
    args: calls.SendRecvArgs<S, R>,
  ): CommOp<R> {
    return this.#poster.post("sendRecv", args, prepareSendRecv);
  }

  group(callback: () => void, options?: unknown): CommOp<void> {
    return postGroup(this.#poster, callback, options);
  }

  split(args: calls.SplitArgs & { readonly color: number }): CommOp<Communicator>;
  split(args: calls.SplitArgs): CommOp<Communicator | undefined>;
  split(args: calls.SplitArgs): CommOp<Communicator | undefined> {
    return this.#poster.post("split", args, prepareSplit);
  }

  capture(callback: () => void, options?: unknown): CommOp<Graph> {
    return postCapture(this.#poster, callback, options);
  }

  prepare<T>(call: () => CommOp<T>, options?: unknown): PersistentCall<T> {
    return prepareCall(this.#poster, call, options);
  }

  explain(question: Question): Explanation {
    assertQuestion(question, this.size, "explain");
    return this.#session.explain(question, this.#comm, this.rank);
  }

  supports(question: Question): boolean {
    try {
      assertQuestion(question, this.size, "supports");
    } catch (error) {
      if (error instanceof InvalidArgumentError) return false;
      throw error;
    }
    return this.#session.refusal(question, this.#comm) === undefined;
  }

  stats(): CommStats {
    const stats = this.#poster.stats();
    return this.capabilities.virtualTime
      ? { ...stats, virtualNs: this.#poster.nowPs / 1000 }
      : stats;
  }

  work(durationNs: number, label?: string): void {
    const { facts } = this.#poster;
    if (typeof durationNs !== "number" || !(durationNs >= 0 && durationNs <= mostWorkNs)) {
      const needed = `a number in 0..${mostWorkNs}`;
      throw invalid("work", "durationNs", textOf(durationNs), needed, undefined, facts);
    }
    if (label !== undefined && typeof label !== "string") {
      throw invalid("work", "label", textOf(label), "a string", undefined, facts);
    }
    this.#poster.work({ durationNs, label });
  }

  #wantsSymmetric(options: AllocOptions): boolean {
    assertOptions("alloc", options, { symmetric: "boolean" }, this.#poster.facts);
    const { symmetric = false } = options;
    if (symmetric && !this.capabilities.symmetricMemory) {
      throw new UnsupportedError(
        {
          headline: `alloc: symmetric: ${this.backend} has no symmetric memory here`,
          hint: "leave symmetric out where comm.capabilities.symmetricMemory is false",
        },
        { ...this.#poster.facts, field: "symmetric" },
      );
    }
    return symmetric;
  }

  /** A new run begins: a communicator that was closed in an earlier one is open again. */
  reopen(): void {
    this.#poster.reopen();
  }

  close(): Promise<void> {
    this.#poster.assertOutside("close");
    return this.end();
  }

  /** Ends what closing it ends. */
  end(): Promise<void> {
    return this.#poster.close();
  }

  abort(reason?: unknown): void {
    this.#requests.abort(reason);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
