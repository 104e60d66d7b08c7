/**
 * A cache of checked calls: a rank that repeats a call with the same arguments, as loops do, uses its prepared call again.
 *
 * A buffer holds its last two calls. Only calls with fixed arguments are cached: buffers, a root, and a named operator. Lists of
 * counts and offsets are compared with their earlier values, and buffers are checked for a disposal.
 */
import type { RankCall, VirtualClock } from "../backend.ts";
import {
  type Allocation,
  allocationOf,
  DeviceBuffer,
  LastUse,
  lastCallOf,
  setLastCall,
} from "../buffer.ts";
import type { CallOptions } from "../calls.ts";
import { hasUnevenBlocks, specifiedCollectives } from "../collectives/call-layout.ts";
import type { HookList } from "../hooks.ts";
import type { RankCalls } from "../ledger/batch.ts";
import type { Ledger } from "../ledger/ledger.ts";
import {
  buffersIn,
  bytesSent,
  markInUse,
  type Prepared,
  type PreparedTransfer,
  repeatedPosting,
} from "../ledger/posting.ts";
import { type CallContext, Operation } from "../op.ts";
import type { CollectiveName } from "../specification.ts";
import { type CallStats, type Channels, type Counter, channelsOf } from "./observers.ts";

/** Arguments of few calls: lengths and places of the blocks of a v-form, and the ranks at the ends of a message. */
const listNames = ["sendCounts", "sendOffsets", "recvCounts", "recvOffsets"] as const;
const rareNames = [...listNames, "peer", "to", "from"] as const;

const argumentNames = ["send", "recv", "op", "root", ...rareNames] as const;

type RareArguments = Readonly<Partial<Record<(typeof rareNames)[number], unknown>>>;

/** All arguments of a call that can be remembered. */
interface Arguments extends RareArguments {
  readonly send?: unknown;
  readonly recv?: unknown;
  readonly op?: unknown;
  readonly root?: unknown;
}

/** A checked call with all that a repetition reads: reading from other objects takes longer. */
export interface CachedCall extends Pick<Arguments, "send" | "recv" | "op" | "root"> {
  /** Its cache: a buffer may be used on several communicators. */
  readonly owner: CallCache;
  readonly collective: CollectiveName;
  readonly prepared: Prepared<unknown>;
  /** The memory of its buffers, as far as that is not the same. */
  readonly first: Allocation | undefined;
  readonly second: Allocation | undefined;
  /** Its rare arguments, with the contents of lists; `undefined` for a call that takes none. */
  readonly rare: readonly unknown[] | undefined;
  /** Number of its arguments without options and without those that are `undefined`. */
  readonly argumentCount: number;
  /** Where it is counted, and what is sent with it. */
  readonly counter: Counter;
  readonly sendBytes: number;
  /** Its channels, where there may be subscribers. */
  readonly channels: Channels | undefined;
  /** The call before it with the same first buffer. */
  before: CachedCall | undefined;
}

/** A checked call before its posting. */
export interface CollectedCall {
  readonly collective: CollectiveName;
  readonly prepared: Prepared<unknown> | PreparedTransfer<unknown>;
  readonly options: CallOptions | undefined;
  readonly op: Operation;
  /** The cached call, if the same call was made before. */
  readonly cached?: CachedCall | undefined;
  /** Virtual time of the call; deadlines count from it. */
  readonly calledAtPs: number;
  /** The call of this rank, once it is created to be posted. */
  call: RankCall | undefined;
}

const messages: readonly CollectiveName[] = ["send", "recv", "sendRecv"];
const uneven: readonly CollectiveName[] = specifiedCollectives.filter(hasUnevenBlocks);

/** Calls that take no other arguments. */
const repeatable = new Set<CollectiveName>([...specifiedCollectives, ...messages]);

/** Calls that take rare arguments, or may. */
const takesRare = new Set<CollectiveName>([...uneven, ...messages]);

/** The calls of one rank on one communicator. */
export class CallCache {
  readonly #stats: CallStats;
  readonly #hooks: HookList;
  readonly #ledger: Ledger;
  readonly #context: CallContext | undefined;
  readonly #timeoutMs: number | undefined;
  readonly #clock: VirtualClock | undefined;
  /** True for a session that neither compares nor observes each call. */
  readonly #supportsRepeats: boolean;
  /** True where messages are repeated, all of which go to other processes. */
  readonly #repeatsMessages: boolean;
  /** The last barrier: it has no buffer that would hold it. `lastCallOf` reads it, as that of a buffer. */
  lastCall: CachedCall | undefined;

  /** `context`: that of the rank's operations, where it is fixed. */
  constructor(stats: CallStats, hooks: HookList, ledger: Ledger, context: CallContext | undefined) {
    const { info, scheduler, observer } = ledger.session;
    this.#stats = stats;
    this.#hooks = hooks;
    this.#ledger = ledger;
    this.#context = context;
    this.#timeoutMs = info.timeoutMs;
    this.#clock = scheduler.clock;
    this.#supportsRepeats = observer === undefined && ledger.job?.compare === undefined;
    this.#repeatsMessages =
      this.#supportsRepeats && ledger.isDistributed && ledger.queueing !== undefined;
  }

  /**
   * Appends a repeated call to an open batch; `undefined` where it has to be checked and posted. `kept` is a call that its owner
   * has cached: then `args` are options.
   *
   * Short enough to be inlined. After a driver call, fetching scattered code and data takes longer than the call itself. Unknown
   * names of arguments are not detected where the call before was otherwise the same: that would take a tenth longer.
   */
  tryAppend(
    batch: RankCalls,
    collective: CollectiveName,
    args: CallOptions | undefined,
    kept?: CachedCall,
  ): Operation | undefined {
    let known = kept;
    let timeoutMs = this.#timeoutMs;
    try {
      if (args !== undefined) {
        if (args.signal !== undefined) return undefined;
        if (args.timeoutMs !== undefined) timeoutMs = args.timeoutMs;
      }
      known ??= this.lookup(collective, args);
    } catch {
      // An argument that throws when it is read does so again, where that is reported.
      return undefined;
    }
    // Comes last: getters of the arguments may make calls of their own. In virtual time, all names of arguments are counted.
    if (known === undefined || this.isObserved(known) || !batch.accepts(timeoutMs))
      return undefined;
    const context = this.#context ?? this.admitted(known, args, batch);
    if (context === undefined) return undefined;
    const op = new Operation(context);
    if (!batch.append(known.prepared, op)) return undefined;
    count(known);
    setLastUse(known, batch, op);
    return op;
  }

  /** The context of a rank whose calls are admitted one by one; `undefined` for a call that is not admitted. */
  admitted(
    known: CachedCall,
    args: CallOptions | undefined,
    { rank }: RankCalls,
  ): CallContext | undefined {
    return this.coversAll(known, args) ? this.#ledger.admittedContext(rank) : undefined;
  }

  /** Makes a collected call again; false if it must be posted as a new call. */
  repeatCollected({ cached, options, op, calledAtPs }: CollectedCall): boolean {
    if (cached === undefined || options?.signal !== undefined || !areAlive(cached)) return false;
    return this.repeat(cached, op, options?.timeoutMs, calledAtPs);
  }

  /** Makes messages again that were made together before; false if they must be posted as new calls. */
  repeatMessages(calls: readonly CollectedCall[]): boolean {
    const [first] = calls;
    if (!this.#supportsRepeats || first === undefined) return false;
    const { prepared, op, options: { timeoutMs } = {} } = first;
    const canRepeat = ({ cached, options }: CollectedCall): boolean =>
      cached !== undefined &&
      options?.signal === undefined &&
      options?.timeoutMs === timeoutMs &&
      areAlive(cached) &&
      !this.isObserved(cached);
    if (!calls.every(canRepeat)) return false;
    const bound = timeoutMs ?? this.#timeoutMs;
    if (!this.#ledger.batches.begin(prepared, op, bound, calls.slice(1))) return false;
    for (const each of calls) this.#noteUse(each.cached as CachedCall, each.op);
    return true;
  }

  /** Makes a call again; false where it has to be posted as a new call. */
  repeat(
    known: CachedCall,
    op: Operation,
    timeoutMs = this.#timeoutMs,
    calledAtPs?: number,
  ): boolean {
    const { prepared } = known;
    if (!this.#supportsRepeats || prepared.rankCall === undefined || this.isObserved(known))
      return false;
    const ledger = this.#ledger;
    if (!ledger.batches.begin(prepared, op, timeoutMs)) {
      if ("transfers" in prepared) return false;
      const nowPs = this.#clock?.now(op.worldRank);
      ledger.post(op.rank, repeatedPosting(prepared, op, timeoutMs, nowPs, calledAtPs));
    }
    this.#noteUse(known, op);
    return true;
  }

  #noteUse(known: CachedCall, op: Operation): void {
    count(known);
    if (op.pending) setLastUse(known, this.#ledger.batches.ofRank(op.rank), op);
    else markInUse(op, known.prepared.call);
  }

  /** True where hooks or channels observe a call. */
  isObserved({ channels }: CachedCall): boolean {
    if (!this.#hooks.idle) return true;
    if (channels === undefined) return false;
    const { onStart, onEnd, onError } = channels;
    return onStart.hasSubscribers || onEnd.hasSubscribers || onError.hasSubscribers;
  }

  /** The same call as it was made before; `undefined` when it has to be checked. */
  lookup(collective: CollectiveName, args: object | undefined): CachedCall | undefined {
    if (typeof args !== "object") return undefined;
    const { send, recv }: Arguments = args;
    let last = lastCallOf(send ?? recv ?? this) as CachedCall | undefined;
    for (; last !== undefined; last = last.before) {
      if (last.owner === this && last.collective === collective && isSame(last, args)) return last;
    }
    return undefined;
  }

  /** True where a cached call has all arguments of `args`: no options, and no name that the call does not take. */
  coversAll(known: CachedCall, args: CallOptions | undefined): boolean {
    if (args === undefined) return true;
    if (args.signal !== undefined || args.timeoutMs !== undefined) return false;
    let names = 0;
    for (const _ in args) names++;
    return names === known.argumentCount;
  }

  /** Remembers a call that was checked. */
  store(collective: CollectiveName, args: object | undefined, prepared: Prepared<unknown>): void {
    if (!repeatable.has(collective) || ("transfers" in prepared && !this.#repeatsMessages)) return;
    if (collective === "barrier") {
      this.lastCall = this.create(collective, prepared);
      return;
    }
    const given = (args ?? noArguments) as Arguments;
    const { send, recv, op } = given;
    const buffer = send ?? recv;
    if (!(buffer instanceof DeviceBuffer) || typeof op === "object") return;
    if (recv !== undefined && !(recv instanceof DeviceBuffer)) return;
    const created = this.create(collective, prepared, given);
    const last = lastCallOf(buffer) as CachedCall | undefined;
    if (last !== undefined) last.before = undefined;
    created.before = last;
    setLastCall(buffer, created);
  }

  /** A call for its keeper; without `given`, it has no arguments that may change. */
  create(collective: CollectiveName, prepared: Prepared<unknown>, given = noArguments): CachedCall {
    const { send, recv, op, root } = given;
    const { call } = prepared;
    const memories = buffersIn(prepared).map(allocationOf);
    const [first] = memories;
    const second = memories.find((memory) => memory !== first);
    return {
      owner: this,
      ...{ collective, send, recv, op, root, prepared, first, second },
      rare: takesRare.has(collective) ? rareOf(given) : undefined,
      argumentCount: definedIn(given),
      counter: this.#stats.counterOf(collective),
      sendBytes: bytesSent(collective, call),
      channels: channelsOf(collective),
      before: undefined,
    };
  }
}

const noArguments: Arguments = {};

/** A call with the same buffers would be the same again, and they live. */
function isSame(last: CachedCall, given: Arguments): boolean {
  return (
    last.send === given.send &&
    last.recv === given.recv &&
    last.op === given.op &&
    last.root === given.root &&
    (last.rare === undefined || hasSame(last.rare, given)) &&
    areAlive(last)
  );
}

/** The buffers of a call live. */
function areAlive({ first, second }: CachedCall): boolean {
  return first?.disposed !== true && second?.disposed !== true;
}

/** Number of arguments of a checked call that are not `undefined`, without options. */
function definedIn(given: Arguments): number {
  let defined = 0;
  for (const name of argumentNames) if (given[name] !== undefined) defined++;
  return defined;
}

function count({ counter, sendBytes }: CachedCall): void {
  counter.calls++;
  counter.sendBytes += sendBytes;
}

/** Until it settles, a call has its memory, or the last one of its batch with that memory. */
function setLastUse({ first, second }: CachedCall, { key }: RankCalls, op: Operation): void {
  if (first !== undefined) useMemory(first, key, op);
  if (second !== undefined) useMemory(second, key, op);
}

function useMemory(memory: Allocation, key: number, op: Operation): void {
  const { lastUse } = memory;
  if (lastUse?.key === key) lastUse.op = op;
  else memory.lastUse = new LastUse(op, key);
}

/** Copies: the caller may write its lists. */
function rareOf(given: RareArguments): readonly unknown[] {
  return rareNames.map((name) => {
    const value = given[name];
    return Array.isArray(value) ? [...value] : value;
  });
}

function hasSame(rare: readonly unknown[], given: RareArguments): boolean {
  return rareNames.every((name, at) => isEqual(rare[at], given[name]));
}

function isEqual(a: unknown, b: unknown): boolean {
  if (!Array.isArray(a) || !Array.isArray(b)) return a === b && !(a instanceof Object);
  return a.length === b.length && a.every((each, at) => each === b[at]);
}
