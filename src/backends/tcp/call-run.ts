/**
 * One call of this rank: the lanes of its program, in rounds.
 *
 * A round moves a slice of every chunk through the whole program. Several rounds are under way at once, so that receiving, folding
 * and sending overlap, and messages stay short. Ranks begin rounds in order, so that the earliest unfinished one has begun
 * everywhere; each round then ends with the credits that the program needs.
 */
import { none } from "../../algorithms/program.ts";
import { CollectiveMismatchError } from "../../api/index.ts";
import { NativePromise } from "../../api/op.ts";
import type { Endpoint } from "./flows.ts";
import type { MessageBlock } from "./message-blocks.ts";
import type { Peers } from "./peers.ts";
import { type Move, type RankProgram, rankProgram } from "./rank-program.ts";
import { type CallData, RoundData } from "./values.ts";
import type { FlowId, Message } from "./wire.ts";

/** A call to run, and its place. */
export interface CallRequest {
  readonly peers: Peers;
  /** `commNumber` of the communicator, and the world rank of each of its ranks. */
  readonly comm: number;
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

/** A call under way. */
export class CallRun {
  readonly #call: CallRequest;
  readonly #program: RankProgram;
  readonly #slice: number;
  readonly #rounds: number;
  #nextRound = 0;
  readonly #openLanes = new Set<LaneRun>();
  /** Messages that the kernel does not have yet, by peer; those of an ended connection stay. */
  readonly #unsent = new Map<number, number>();
  /** Peers without room for another call yet. */
  #missingRoom = 0;
  readonly #receivedBytes = new Map<number, number>();
  #isOver = false;
  readonly #outcome = new NativePromise<void>();

  constructor(call: CallRequest) {
    this.#call = call;
    const { program, slices, tables } = call.data;
    this.#program = rankProgram(program, call.rank);
    this.#slice = slices.elements;
    const longest = Math.max(longestOf(tables.in.lengths), longestOf(tables.out.lengths));
    this.#rounds = Math.max(1, Math.ceil(longest / this.#slice));
  }

  get done(): Promise<void> {
    return this.#outcome.promise;
  }

  /** Begins, once every peer that gets messages has room for another call. */
  start(): void {
    const wait = (peer: number): void => {
      const begins = this.endpoint(peer).begin(() => {
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

  /** True while it has messages to send to a world rank, or to receive from it. */
  needs(worldRank: number): boolean {
    const peer = this.#call.ranks.indexOf(worldRank);
    const isPeer = this.#program.sendsTo.has(peer) || this.#program.receivesFrom.has(peer);
    if (this.#isOver || !isPeer) return false;
    if (this.#unsent.has(peer)) return true;
    for (const lane of this.#openLanes) if (lane.needs(peer)) return true;
    for (let round = this.#nextRound; round < this.#rounds; round++) {
      const { data, peers } = this.#call;
      const values = new RoundData(data, round, this.#slice, peers.blocks);
      const needed = (move: Move): boolean => isWith(move, peer) && values.has(move);
      if (this.#program.lanes.some((moves) => moves.some(needed))) return true;
    }
    return false;
  }

  /** Ends it without the others. */
  fail(error: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#forget();
    this.#outcome.reject(error);
  }

  #startRounds(): void {
    const { lanesAtOnce } = this.#call.data.slices;
    const atOnce = Math.max(1, Math.floor(lanesAtOnce / this.#program.lanes.length));
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
    const lanes = this.#program.lanes.map((moves, lane) => {
      const id = { sequence: this.#call.sequence, lane, round, total: 0 };
      return new LaneRun(this, moves, values, id);
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
    if (this.#nextRound < this.#rounds) return;
    this.#isOver = true;
    const { peers, comm, ranks } = this.#call;
    for (const peer of this.#program.receivesFrom) {
      const report = this.endpoint(peer).end(this.#receivedBytes.get(peer) ?? 0);
      if (report !== undefined) peers.ended(ranks[peer] as number, comm, report);
    }
    this.#forget();
    this.#outcome.resolve(undefined);
  }

  #forget(): void {
    const { peers, sequence } = this.#call;
    for (const peer of new Set([...this.#program.sendsTo, ...this.#program.receivesFrom])) {
      this.endpoint(peer).forget(sequence, peers.blocks);
    }
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  get credits(): number {
    return this.#call.data.slices.credits;
  }

  /** The traffic with a peer. */
  endpoint(peer: number): Endpoint {
    const { peers, comm, ranks } = this.#call;
    return peers.endpoint(comm, ranks[peer] as number);
  }

  /** A message was taken from a peer: number `index` of its lane. The sender needs the credit only for a later message. */
  taken(peer: number, id: FlowId, index: number, bytes: number): void {
    this.#receivedBytes.set(peer, (this.#receivedBytes.get(peer) ?? 0) + bytes);
    const all = this.#program.receives[id.lane]?.get(peer) ?? 0;
    const { peers, comm, ranks } = this.#call;
    if (index + this.credits < all) peers.credit(ranks[peer] as number, comm, id);
  }

  send(peer: number, id: Message, block: MessageBlock): void {
    const { peers, comm, ranks } = this.#call;
    this.endpoint(peer).sent(block.bytes.byteLength);
    this.#addUnsent(peer, 1);
    peers.send(ranks[peer] as number, comm, id, block, () => {
      this.#addUnsent(peer, -1);
      this.#finishIfDone();
    });
  }

  #addUnsent(peer: number, more: number): void {
    const count = (this.#unsent.get(peer) ?? 0) + more;
    if (count === 0) this.#unsent.delete(peer);
    else this.#unsent.set(peer, count);
  }

  /** The error for a message of another length than the step needs. It is a slice of a block of unknown length. */
  lengthError(peer: number, found: number, needed: number): CollectiveMismatchError {
    const { rank, ranks, name, collective, number } = this.#call;
    return new CollectiveMismatchError(
      {
        headline: `${collective}: call ${number} on "${name}": rank ${peer} has sent a part of ${found} bytes, rank ${rank} expects one of ${needed}`,
        hint: 'blocks travel in parts. The ranks pass different plans to tcp(), or have made different calls: on a communicator of all ranks tcp({ compareCalls: "always" }) names these',
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

function isWith({ from, to }: Move, peer: number): boolean {
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
  readonly #moves: readonly Move[];
  readonly #data: RoundData;
  readonly #id: Message;
  #at = 0;
  /** The value of the current move, which waits for a credit to send it. */
  #value: MessageBlock | undefined;
  /** Messages taken so far, by peer. */
  readonly #taken = new Map<number, number>();

  constructor(run: CallRun, moves: readonly Move[], data: RoundData, id: Message) {
    this.#run = run;
    this.#moves = moves;
    this.#data = data;
    this.#id = id;
  }

  readonly #resume = (): void => {
    if (!this.#run.isOver) this.#run.attempt(() => this.advance());
  };

  /** True while a move has a message to send to a peer, or to receive from it. */
  needs(peer: number): boolean {
    return this.#moves.some((move, at) => {
      if (at < this.#at || !this.#data.has(move)) return false;
      return at === this.#at && this.#value !== undefined ? move.to === peer : isWith(move, peer);
    });
  }

  /** Makes moves until one has to wait. */
  advance(): void {
    const moves = this.#moves;
    for (; this.#at < moves.length; this.#at++) {
      const move = moves[this.#at] as Move;
      if (this.#value === undefined) {
        if (!this.#data.has(move)) continue;
        if (!this.#compute(move)) return;
      }
      if (this.#value !== undefined && !this.#send(move.to, this.#value)) return;
    }
    this.onDone();
  }

  /** Receives and computes. False where the message has not arrived, or is wrong. */
  #compute(move: Move): boolean {
    const { from } = move;
    const received = from === none ? undefined : this.#take(move);
    if (received === undefined && from !== none) return false;
    this.#value = this.#data.perform(move, received);
    return true;
  }

  /** The message of a move; `undefined` where it has not arrived, or is wrong. */
  #take(move: Move): MessageBlock | undefined {
    const { from } = move;
    const arrival = this.#run.endpoint(from).incoming(this.#id).take(this.#resume);
    if (arrival === undefined) return undefined;
    const index = this.#taken.get(from) ?? 0;
    this.#taken.set(from, index + 1);
    const found = arrival.block.bytes.byteLength;
    this.#run.taken(from, this.#id, index, found);
    const needed = this.#data.bytesOf(move);
    if (found === needed) return arrival.block;
    this.#run.fail(this.#run.lengthError(from, found, needed));
    return undefined;
  }

  /** Sends the value. False without a credit. */
  #send(to: number, value: MessageBlock): boolean {
    const flow = this.#run.endpoint(to).outgoing(this.#id, this.#run.credits);
    if (!flow.takeCredit(this.#resume)) return false;
    this.#value = undefined;
    this.#run.send(to, this.#id, value);
    return true;
  }
}
