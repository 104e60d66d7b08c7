/**
 * One call of this rank: the lanes of its program, in rounds.
 *
 * A round moves a slice of every chunk through the whole program. Several rounds are under way at once, so that receiving, folding
 * and sending overlap, and messages stay short. Ranks begin rounds in order, so that the earliest unfinished one has begun
 * everywhere; each round then ends with the credits that the program needs.
 */
import { none, type Program, type Step, stepAt } from "../../algorithms/program.ts";
import { CollectiveMismatchError } from "../../api/index.ts";
import type { Flow } from "./flows.ts";
import type { Peers } from "./peers.ts";
import { type CallData, RoundData, sliceElements, type Value } from "./values.ts";
import type { FlowId } from "./wire.ts";

/** Lanes that are under way at once, about: a lane that waits for a message leaves the processor to others. */
const lanesAtOnce = 8;

/** A call to run, and its place. */
export interface CallRequest {
  readonly peers: Peers;
  /** Key of the communicator, and the rank in the job of each of its ranks. */
  readonly comm: string;
  readonly ranks: readonly number[];
  /** This rank, among those of the communicator. */
  readonly rank: number;
  readonly sequence: number;
  readonly data: CallData;
  /** Names of the call and the communicator, for errors. */
  readonly collective: string;
  readonly name: string;
  readonly number: number;
}

/** Ranks that a lane sends to or receives from, with the number of messages. */
type Traffic = ReadonlyMap<number, number>;

/** The steps of a rank. */
interface RankProgram {
  /** Steps by channel. */
  readonly lanes: readonly (readonly Step[])[];
  /** By channel. */
  readonly sends: readonly Traffic[];
  readonly receives: readonly Traffic[];
  readonly sendsTo: ReadonlySet<number>;
  readonly receivesFrom: ReadonlySet<number>;
}

const rankPrograms = new WeakMap<Program, Map<number, RankProgram>>();

/** The steps of a rank; programs are immutable. */
function rankProgram(program: Program, rank: number): RankProgram {
  let ofRanks = rankPrograms.get(program);
  if (ofRanks === undefined) {
    ofRanks = new Map();
    rankPrograms.set(program, ofRanks);
  }
  let found = ofRanks.get(rank);
  if (found === undefined) {
    found = readRankProgram(program, rank);
    ofRanks.set(rank, found);
  }
  return found;
}

function readRankProgram(program: Program, rank: number): RankProgram {
  const { channels, starts } = program;
  const lanes = Array.from({ length: channels }, (_, channel) => {
    const lane = rank * channels + channel;
    const first = starts[lane] as number;
    const length = (starts[lane + 1] as number) - first;
    return Array.from({ length }, (_, i) => stepAt(program, first + i));
  });
  const traffic = (field: "from" | "to"): Map<number, number>[] =>
    lanes.map((steps) => {
      const counts = new Map<number, number>();
      for (const { [field]: peer } of steps) {
        if (peer !== none) counts.set(peer, (counts.get(peer) ?? 0) + 1);
      }
      return counts;
    });
  const [sends, receives] = [traffic("to"), traffic("from")];
  const peersOf = (all: readonly Traffic[]) => new Set(all.flatMap((each) => [...each.keys()]));
  return { lanes, sends, receives, sendsTo: peersOf(sends), receivesFrom: peersOf(receives) };
}

/** A call under way. */
export class CallRun {
  readonly #call: CallRequest;
  readonly #program: RankProgram;
  readonly #slice: number;
  readonly #rounds: number;
  #nextRound = 0;
  readonly #openLanes = new Set<LaneRun>();
  /** Peers that a message could not reach, because the connection had ended. */
  readonly #unreached = new Set<number>();
  /** Payloads of the caller's memory that are not sent yet, by peer. */
  readonly #unsent = new Map<number, number>();
  /** Peers without room for another call yet. */
  #missingRoom = 0;
  readonly #receivedBytes = new Map<number, number>();
  #isOver = false;
  readonly #settle: { readonly resolve: () => void; readonly reject: (error: unknown) => void };
  readonly done: Promise<void>;

  constructor(call: CallRequest) {
    this.#call = call;
    const { program, dtype, tables } = call.data;
    this.#program = rankProgram(program, call.rank);
    this.#slice = sliceElements(program, dtype);
    const longest = Math.max(longestOf(tables.in.lengths), longestOf(tables.out.lengths));
    this.#rounds = Math.max(1, Math.ceil(longest / this.#slice));
    let settle: { resolve: () => void; reject: (error: unknown) => void } | undefined;
    this.done = new Promise((resolve, reject) => {
      settle = { resolve, reject };
    });
    this.#settle = settle as NonNullable<typeof settle>;
  }

  /** Begins, once every peer that gets messages has room for another call. */
  start(): void {
    const { peers, comm, ranks } = this.#call;
    const wait = (peer: number): void => {
      const begins = peers.endpoint(comm, ranks[peer] as number).begin(() => {
        if (this.#isOver) return;
        this.#missingRoom--;
        wait(peer);
        if (this.#missingRoom === 0) this.#startRounds();
      });
      if (!begins) this.#missingRoom++;
    };
    for (const peer of this.#program.sendsTo) wait(peer);
    if (this.#missingRoom === 0) this.#startRounds();
  }

  /** True while it has messages to send to a rank of the job, or to receive from it. */
  needs(place: number): boolean {
    const peer = this.#call.ranks.indexOf(place);
    const isPeer = this.#program.sendsTo.has(peer) || this.#program.receivesFrom.has(peer);
    if (this.#isOver || !isPeer) return false;
    if (this.#unreached.has(peer) || this.#unsent.has(peer)) return true;
    for (const lane of this.#openLanes) if (lane.needs(peer)) return true;
    for (let round = this.#nextRound; round < this.#rounds; round++) {
      const { data, peers } = this.#call;
      const values = new RoundData(data, round, this.#slice, peers.blocks);
      const needed = (step: Step): boolean => isWith(step, peer) && values.has(step);
      if (this.#program.lanes.some((steps) => steps.some(needed))) return true;
    }
    return false;
  }

  /** Ends it without the others. */
  fail(error: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#forget();
    this.#settle.reject(error);
  }

  #startRounds(): void {
    const channels = Math.max(1, this.#program.lanes.length);
    const atOnce = Math.max(1, Math.floor(lanesAtOnce / channels));
    this.attempt(() => {
      for (let i = 0; i < atOnce; i++) this.#startRound();
      this.#finishIfDone();
    });
  }

  /** Does some of its work. A socket may have called for it, so an error fails the call here. */
  attempt(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.fail(error);
    }
  }

  #startRound(): void {
    if (this.#nextRound >= this.#rounds || this.#isOver) return;
    const round = this.#nextRound++;
    const { data, peers } = this.#call;
    const values = new RoundData(data, round, this.#slice, peers.blocks);
    const lanes = this.#program.lanes.map((steps, channel) => {
      return new LaneRun(this, steps, values, { sequence: this.#call.sequence, channel, round });
    });
    let open = lanes.length;
    for (const lane of lanes) {
      this.#openLanes.add(lane);
      lane.onDone = () => {
        open--;
        this.#openLanes.delete(lane);
        if (open > 0) return;
        values.release();
        this.#startRound();
        this.#finishIfDone();
      };
    }
    for (const lane of lanes) lane.advance();
  }

  #finishIfDone(): void {
    if (this.#isOver || this.#openLanes.size > 0 || this.#unsent.size > 0) return;
    if (this.#nextRound < this.#rounds || this.#unreached.size > 0) return;
    this.#isOver = true;
    const { peers, comm, ranks } = this.#call;
    for (const peer of this.#program.receivesFrom) {
      const place = ranks[peer] as number;
      const report = peers.endpoint(comm, place).end(this.#receivedBytes.get(peer) ?? 0);
      if (report !== undefined) peers.ended(place, comm, report);
    }
    this.#forget();
    this.#settle.resolve();
  }

  #forget(): void {
    const { peers, comm, ranks, sequence } = this.#call;
    for (const peer of new Set([...this.#program.sendsTo, ...this.#program.receivesFrom])) {
      peers.endpoint(comm, ranks[peer] as number).forget(sequence, peers.blocks);
    }
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** The flow of a lane from a peer. */
  incoming(peer: number, id: FlowId): Flow {
    const { peers, comm, ranks } = this.#call;
    return peers.endpoint(comm, ranks[peer] as number).incoming(id);
  }

  /** The flow of a lane to a peer. */
  outgoing(peer: number, id: FlowId): Flow {
    const { peers, comm, ranks } = this.#call;
    return peers.endpoint(comm, ranks[peer] as number).outgoing(id, this.#call.data.credits);
  }

  /** A message was taken from a peer: number `index` of its lane. The sender needs the credit only for a later message. */
  taken(peer: number, id: FlowId, index: number, bytes: number): void {
    this.#receivedBytes.set(peer, (this.#receivedBytes.get(peer) ?? 0) + bytes);
    const all = this.#program.receives[id.channel]?.get(peer) ?? 0;
    const { peers, comm, ranks } = this.#call;
    if (index + this.#call.data.credits < all) peers.credit(ranks[peer] as number, comm, id);
  }

  send(peer: number, id: FlowId, value: Value | undefined): void {
    const { peers, comm, ranks } = this.#call;
    const place = ranks[peer] as number;
    if (peers.endOf(place) !== undefined) this.#unreached.add(peer);
    const bytes = value?.bytes.byteLength ?? 0;
    peers.endpoint(comm, place).sent(bytes);
    const block = value?.block;
    if (block !== undefined) {
      const give = (): void => peers.blocks.give(block);
      if (!peers.send(place, comm, { ...id, total: 0 }, block.bytes, give)) give();
      return;
    }
    const isSending = peers.send(place, comm, { ...id, total: 0 }, value?.bytes, (error) => {
      // What was not sent stays needed: the end of the connection fails the call.
      if (error) return;
      this.#addUnsent(peer, -1);
      this.#finishIfDone();
    });
    if (isSending) this.#addUnsent(peer, 1);
  }

  #addUnsent(peer: number, more: number): void {
    const count = (this.#unsent.get(peer) ?? 0) + more;
    if (count === 0) this.#unsent.delete(peer);
    else this.#unsent.set(peer, count);
  }

  /** The error for a message of another length than the step needs. */
  lengthError(peer: number, found: number, needed: number): CollectiveMismatchError {
    const { rank, ranks, name, collective, number } = this.#call;
    return new CollectiveMismatchError(
      {
        headline: `${collective}: call ${number} on "${name}": rank ${peer} has sent ${found} bytes, rank ${rank} expects ${needed}`,
        hint: 'the ranks have made different calls: tcp({ compareCalls: "always" }) names them',
      },
      {
        rank,
        size: ranks.length,
        comm: name,
        collective,
        call: number,
        ranks: [peer, rank],
        values: [`${found} bytes`, `${needed} bytes`],
      },
    );
  }
}

function isWith({ from, to }: Step, peer: number): boolean {
  return from === peer || to === peer;
}

function longestOf(lengths: Float64Array): number {
  let longest = 0;
  for (const length of lengths) longest = Math.max(longest, length);
  return longest;
}

/** One lane of one round. */
class LaneRun {
  onDone: () => void = () => undefined;
  readonly #run: CallRun;
  readonly #steps: readonly Step[];
  readonly #data: RoundData;
  readonly #id: FlowId;
  #at = 0;
  /** The current step has its value, and waits for a credit to send it. */
  #hasValue = false;
  #value: Value | undefined;
  /** Messages taken so far, by peer. */
  readonly #taken = new Map<number, number>();

  constructor(run: CallRun, steps: readonly Step[], data: RoundData, id: FlowId) {
    this.#run = run;
    this.#steps = steps;
    this.#data = data;
    this.#id = id;
  }

  readonly #resume = (): void => {
    if (!this.#run.isOver) this.#run.attempt(() => this.advance());
  };

  /** True while a step has a message to send to a peer, or to receive from it. */
  needs(peer: number): boolean {
    return this.#steps.some((step, at) => {
      if (at < this.#at || !this.#data.has(step)) return false;
      return at === this.#at && this.#hasValue ? step.to === peer : isWith(step, peer);
    });
  }

  /** Runs steps until one has to wait. */
  advance(): void {
    const steps = this.#steps;
    for (; this.#at < steps.length; this.#at++) {
      const step = steps[this.#at] as Step;
      if (!this.#hasValue) {
        if (!this.#data.has(step)) continue;
        if (!this.#compute(step)) return;
      }
      if (step.to !== none && !this.#send(step.to)) return;
      this.#hasValue = false;
    }
    this.onDone();
  }

  /** Receives and computes. False where the message has not arrived, or is wrong. */
  #compute(step: Step): boolean {
    const { from } = step;
    if (from === none) {
      this.#value = this.#data.perform(step, undefined);
    } else {
      const arrival = this.#run.incoming(from, this.#id).take(this.#resume);
      if (arrival === undefined) return false;
      const index = this.#taken.get(from) ?? 0;
      this.#taken.set(from, index + 1);
      const found = arrival.block.bytes.byteLength;
      this.#run.taken(from, this.#id, index, found);
      const needed = this.#data.bytesOf(step);
      if (found !== needed) {
        this.#run.fail(this.#run.lengthError(from, found, needed));
        return false;
      }
      this.#value = this.#data.perform(step, arrival.block);
    }
    this.#hasValue = true;
    return true;
  }

  /** Sends the value. False without a credit. */
  #send(to: number): boolean {
    if (!this.#run.outgoing(to, this.#id).takeCredit(this.#resume)) return false;
    this.#run.send(to, this.#id, this.#value);
    this.#value = undefined;
    return true;
  }
}
