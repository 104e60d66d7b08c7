/**
 * One generation of a job inside the store: its ranks, its keys, and its waits.
 *
 * Requests are processed synchronously and in order; only deadlines use timers.
 */
import { ranksText } from "../api/error-text.ts";
import { longestTimerMs } from "../api/ledger/turns.ts";
import { type Failure, limits, type Reply, type Request } from "./protocol.ts";
import { Barriers, type BarrierWait, heldBytes, type Wait, Waits } from "./waits.ts";

/** A wait for an answer. Equal questions to one rank at the same moment are one question. */
interface Ask extends Wait {
  readonly question: { readonly id: number; readonly rank: number };
}

/** One generation. Ranks are numbered within it. */
export class Generation {
  readonly number: number;
  readonly members: readonly Member[];
  readonly #values = new Map<string, Uint8Array>();
  readonly #gets = new Waits<Wait>();
  readonly #barriers = new Barriers();
  /** By the rank of the answer and the text. */
  readonly #asks = new Waits<Ask>();
  #nextQuestion = 1;
  #bytes = 0;
  readonly #ranks: readonly number[];
  #over: Failure | undefined;

  constructor(number: number, members: readonly Member[]) {
    this.number = number;
    this.members = members;
    this.#ranks = members.map((_, rank) => rank);
  }

  /** The reason of its end; `undefined` before. */
  get over(): Failure | undefined {
    return this.#over;
  }

  /** Bytes of all values. */
  get #heldBytes(): number {
    return this.#bytes + this.#barriers.bytes;
  }

  /** Ranks that are neither lost nor left. */
  get presentRanks(): number[] {
    return ranksWhere(this.members, (member) => member.state === "here");
  }

  set(rank: number, id: number, key: string, value: Uint8Array): void {
    if (this.#over !== undefined) {
      this.#fail(rank, id, this.#over);
      return;
    }
    if (this.#values.has(key)) {
      this.#fail(rank, id, {
        code: "taken",
        headline: `set: the key "${key}" is set already, and the first value stays`,
        hint: "a key is set once in a generation; exchange() may repeat its key",
      });
      return;
    }
    const bytes = heldBytes(key, value);
    if (this.#heldBytes + bytes > limits.storeBytes) {
      this.#fail(rank, id, tooMuch("set", limits.storeBytes));
      return;
    }
    this.#bytes += bytes;
    this.#values.set(key, value);
    for (const wait of this.#gets.end(this.#gets.ofKey(key)))
      this.#reply(wait.rank, { kind: "value", id: wait.id, value });
    this.#reply(rank, { kind: "done", id });
  }

  get(rank: number, { id, key, timeoutMs }: Extract<Request, { kind: "get" }>): void {
    if (this.#over !== undefined) {
      this.#fail(rank, id, this.#over);
      return;
    }
    const value = this.#values.get(key);
    if (value !== undefined) {
      this.#reply(rank, { kind: "value", id, value });
      return;
    }
    const refusal = this.#waitRefusal("get", rank) ?? this.#lossFailingGet(key, rank);
    if (refusal !== undefined) {
      this.#fail(rank, id, refusal);
      return;
    }
    const timer = after(timeoutMs, () => {
      this.#gets.end([wait]);
      this.#fail(rank, id, {
        code: "timeout",
        headline: `get: no rank has set the key "${key}" within ${timeoutMs} ms`,
        hint: "a rank may be slow to start; see whether all of them reach this point",
      });
    });
    const wait: Wait = { key, rank, id, timer };
    this.#gets.add(wait);
  }

  /** A rank may wait for some keys and answers only. */
  #waitRefusal(what: "get" | "ask", rank: number): PartialFailure | undefined {
    const most = Math.max(limits.waits, 4 * this.members.length);
    if (this.#gets.ofRank(rank).size + this.#asks.ofRank(rank).size >= most) {
      const headline = `${what}: a rank has at most ${most} waits at once`;
      return { code: "limit", headline, hint: "await those that are open first" };
    }
    return undefined;
  }

  /** True for ranks of this generation, each once. */
  #areSome(ranks: readonly number[]): boolean {
    const size = this.members.length;
    return ranks.every((each) => each < size) && new Set(ranks).size === ranks.length;
  }

  /** Waits at barriers, with a value at one of them. */
  wait(rank: number, request: Extract<Request, { kind: "barrier" }>): void {
    const { id, value, timeoutMs } = request;
    // No ranks stand for all of them.
    const barriers = request.barriers.map(({ key, ranks }) => {
      return { key, ranks: ranks.length === 0 ? this.#ranks : ranks };
    });
    const refusal = this.#over ?? this.#refusal(rank, { barriers, value });
    if (refusal !== undefined) {
      this.#fail(rank, id, refusal);
      return;
    }
    const timer = after(timeoutMs, () => {
      const missing = this.#barriers.missing(mine, mine);
      this.#barriers.leave(mine);
      this.#fail(rank, id, {
        code: "timeout",
        headline: `${waitText(mine)}: ${lateText(mine, missing)} within ${timeoutMs} ms${value === undefined ? "" : `, missing ${ranksText(missing)}`}`,
        hint: "see whether all ranks reach this point; one may be slow or stuck",
        ranks: missing,
      });
    });
    const mine: BarrierWait = { rank, id, barriers, timer, value };
    const together = this.#barriers.arrive(mine);
    this.#release(together);
  }

  #refusal(
    rank: number,
    wait: Pick<BarrierWait, "barriers" | "value">,
  ): PartialFailure | undefined {
    const { barriers, value } = wait;
    const [first] = barriers;
    if (this.#barriers.countOf(rank) + barriers.length > limits.barriers) {
      const headline = `barrier: a rank waits for at most ${limits.barriers} barriers at once`;
      return { code: "limit", headline, hint: "await those that are open first" };
    }
    const isOften = barriers.some(({ key }) => this.#barriers.isFull(rank, key));
    if (isOften || new Set(barriers.map(({ key }) => key)).size < barriers.length) {
      const headline = `barrier: a rank waits at one key ${limits.rounds} times at once, and once in one request`;
      return { code: "limit", headline, hint: "give other barriers other keys" };
    }
    const areFine = barriers.every(({ ranks }) => this.#areSome(ranks) && ranks.includes(rank));
    if (!areFine) return wrongRanks("barrier", this.members.length, rank);
    if (value !== undefined) {
      if (first === undefined || barriers.length > 1) return severalValues;
      const bytes = this.#barriers.bytesAt(rank, first.key) + value.byteLength;
      const held = this.#heldBytes + heldBytes(first.key, value);
      if (bytes > limits.exchangeBytes || held > limits.storeBytes)
        return tooMuch("exchange", limits.exchangeBytes);
    }
    return this.#lossFailingBarriers({ rank, ...wait });
  }

  #release(together: readonly BarrierWait[]): void {
    const byRank = new Map(together.map((each) => [each.rank, each.value]));
    // Ranks with the same order get the same list, which is encoded once.
    const lists = new Map<string, readonly Uint8Array[]>();
    for (const { rank, id, barriers, value } of together) {
      if (value === undefined) {
        this.#reply(rank, { kind: "done", id });
        continue;
      }
      const ranks = barriers[0]?.ranks ?? [];
      const order = ranks === this.#ranks ? "all" : String(ranks);
      const values = lists.get(order) ?? ranks.map((each) => byRank.get(each) ?? new Uint8Array(0));
      lists.set(order, values);
      this.#reply(rank, { kind: "values", id, values });
    }
  }

  /** Passes news on. */
  announce(rank: number, { ranks, news }: Extract<Request, { kind: "announce" }>): void {
    if (this.#over !== undefined) return;
    for (const to of new Set(ranks)) {
      if (to !== rank && this.members[to]?.state === "here")
        this.#reply(to, { kind: "news", generation: this.number, rank, news });
    }
  }

  /** Passes a question on, or adds a wait to one that was passed on. */
  ask(asker: number, request: Extract<Request, { kind: "ask" }>): void {
    const { id, rank, question, timeoutMs } = request;
    const wrong = this.#areSome([rank]) ? undefined : wrongRanks("ask", this.members.length);
    const refusal = this.#over ?? this.#waitRefusal("ask", asker) ?? wrong;
    if (refusal !== undefined) {
      this.#fail(asker, id, refusal);
      return;
    }
    if (this.members[rank]?.state !== "here") {
      this.#answerFor(rank, [{ rank: asker, id }]);
      return;
    }
    const key = `${rank} ${question}`;
    const [first] = this.#asks.ofKey(key);
    const open = first?.question;
    const asked = open ?? { id: this.#nextQuestion++, rank };
    if (open === undefined)
      this.#reply(rank, { kind: "asked", id: asked.id, generation: this.number, question });
    const timer = after(timeoutMs, () => {
      this.#asks.end([wait]);
      this.#fail(asker, id, {
        code: "timeout",
        headline: `ask: rank ${rank} did not answer within ${timeoutMs} ms`,
        hint: "its process may be blocked or stopped",
        ranks: [rank],
      });
    });
    const wait: Ask = { key, rank: asker, id, timer, question: asked };
    this.#asks.add(wait);
  }

  /** Passes an answer on to all that wait for it. */
  answer(rank: number, { id, text }: Extract<Request, { kind: "answer" }>): void {
    for (const waits of this.#asks.groups()) {
      const [first] = waits;
      if (first?.question.id !== id || first.question.rank !== rank) continue;
      for (const wait of this.#asks.end(waits))
        this.#reply(wait.rank, { kind: "answered", id: wait.id, text });
      return;
    }
  }

  /** Answers questions to a rank that is gone: with its last status, or by its loss. */
  #answerFor(gone: number, asks: readonly Pick<Ask, "rank" | "id">[]): void {
    const text = this.members[gone]?.status;
    for (const { rank, id } of asks) {
      if (text === undefined) this.#fail(rank, id, lossFailure(this.members, "ask", [gone]));
      else this.#reply(rank, { kind: "answered", id, text });
    }
  }

  /** Cancels a wait of that rank, unless it has ended. */
  cancel(rank: number, id: number): void {
    const isMine = (wait: Pick<Wait, "rank" | "id">): boolean =>
      wait.rank === rank && wait.id === id;
    this.#gets.end([...this.#gets.ofRank(rank)].filter(isMine));
    this.#asks.end([...this.#asks.ofRank(rank)].filter(isMine));
    for (const each of this.#barriers.waiting(isMine)) {
      this.#barriers.leave(each);
      this.#reply(rank, { kind: "withdrawn", id });
    }
  }

  /** A rank is gone: waits that need it fail, and the others get a notice of a loss. */
  gone(rank: number, state: "lost" | "left", reason: string, status?: string): void {
    const member = this.members[rank];
    if (member === undefined || member.state !== "here") return;
    member.state = state;
    member.reason = reason;
    this.#keepStatus(member, status);
    this.#dropWaitsOf(rank);
    this.#answerFor(
      rank,
      this.#asks.end(this.#asks.all().filter(({ question }) => question.rank === rank)),
    );
    if (state === "lost" && this.#over === undefined) {
      const news = {
        kind: "lost",
        generation: this.number,
        rank,
        atMs: Date.now(),
        reason,
      } as const;
      for (const other of this.presentRanks) this.#reply(other, news);
    }
    for (const wait of this.#gets.all()) {
      const failure = this.#lossFailingGet(wait.key, wait.rank);
      if (failure === undefined) continue;
      this.#gets.end([wait]);
      this.#fail(wait.rank, wait.id, failure);
    }
    for (const each of this.#barriers.waiting(() => true)) {
      const failure = this.#lossFailingBarriers(each, each);
      if (failure !== undefined) this.#failBarriers(each, failure);
    }
  }

  /** Keeps the last status of a rank, where the store has room for it. */
  #keepStatus(member: Member, status: string | undefined): void {
    const bytes = Buffer.byteLength(status ?? "");
    if (status === undefined || this.#heldBytes + bytes > limits.storeBytes) return;
    this.#bytes += bytes;
    member.status = status;
  }

  /** The next generation has begun: ranks that are not in it get those that are, and nothing happens here any more. */
  endFor({ number, members }: Generation, peers: ReadonlySet<Peer>): void {
    const ranks = ranksWhere(this.members, ({ peer }) => peers.has(peer));
    for (const rank of this.presentRanks) {
      if (!ranks.includes(rank))
        this.#reply(rank, { kind: "began", generation: this.number, ranks });
    }
    this.end({
      code: "over",
      headline: `generation ${this.number + 1} is over: generation ${number + 1} was formed of ${members.length} ${members.length === 1 ? "rank" : "ranks"}`,
      hint: "use the communicator that rebuild() gave; a rank that is not in it has to end",
      ranks,
      joined: [],
    });
  }

  /** Nothing happens here any more: every wait, and every later request, fails with this. */
  end(failure: Failure): void {
    this.#over = failure;
    for (const { rank, id } of this.#gets.end(this.#gets.all())) this.#fail(rank, id, failure);
    for (const each of this.#barriers.waiting(() => true)) this.#failBarriers(each, failure);
    for (const { rank, id } of this.#asks.end(this.#asks.all())) this.#fail(rank, id, failure);
    this.#values.clear();
  }

  #failBarriers(wait: BarrierWait, failure: PartialFailure): void {
    this.#barriers.leave(wait);
    this.#fail(wait.rank, wait.id, failure);
  }

  /** A lost rank has no waits; its value in an exchange still counts. */
  #dropWaitsOf(rank: number): void {
    this.#gets.end(this.#gets.ofRank(rank));
    this.#asks.end(this.#asks.ofRank(rank));
    for (const each of this.#barriers.waiting((wait) => wait.rank === rank)) {
      if (each.value === undefined) this.#barriers.leave(each);
      else clearTimeout(each.timer);
    }
  }

  /** The loss that keeps a wait from its end; `own` where it has arrived. */
  #lossFailingBarriers(
    wait: Pick<BarrierWait, "rank" | "barriers" | "value">,
    own?: BarrierWait,
  ): PartialFailure | undefined {
    const missing = this.#barriers.missing(wait, own);
    const gone = missing.filter((rank) => this.members[rank]?.state !== "here");
    return gone.length === 0 ? undefined : lossFailure(this.members, waitText(wait), gone);
  }

  /** The loss that ends a wait for a key: of any rank, or the end of all others. */
  #lossFailingGet(key: string, rank: number): PartialFailure | undefined {
    const isAlone = this.presentRanks.every((each) => each === rank);
    const gone = ranksWhere(
      this.members,
      ({ state }) => state === "lost" || (state === "left" && isAlone),
    );
    return gone.length === 0 ? undefined : lossFailure(this.members, `get "${key}"`, gone);
  }

  #fail(rank: number, id: number, failure: PartialFailure): void {
    this.#reply(rank, { kind: "failed", id, ranks: [], joined: [], ...failure });
  }

  #reply(rank: number, reply: Reply): void {
    this.members[rank]?.peer.send(reply);
  }
}

/**
 * A deadline that keeps no process alive. A rank may send a longer time than timers allow, which is then the longest possible.
 */
export function after(timeoutMs: number, then: () => void): NodeJS.Timeout {
  return setTimeout(then, Math.min(timeoutMs, longestTimerMs)).unref();
}

/** The call that waits, for messages. */
function waitText({ barriers, value }: Pick<BarrierWait, "barriers" | "value">): string {
  return value === undefined ? "barrier" : `exchange "${barriers[0]?.key}"`;
}

/** The progress of a wait whose deadline has passed. */
function lateText({ barriers, value }: BarrierWait, missing: readonly number[]): string {
  if (value === undefined) return `${ranksText(missing)} did not arrive`;
  const all = barriers[0]?.ranks.length ?? 0;
  return `${all - missing.length} of ${all} ranks gave a value`;
}

const severalValues: PartialFailure = {
  code: "limit",
  headline: "barrier: a value waits at one barrier",
  hint: "give each barrier a request of its own",
};

/** The refusal of ranks that do not exist, are named twice, or lack the one that waits. */
function wrongRanks(what: string, size: number, rank?: number): FailureText {
  const own = rank === undefined ? "" : `, and rank ${rank} one of them`;
  return {
    code: "limit",
    headline: `${what}: its ranks need to be some of 0..${size - 1}, each once${own}`,
    hint: "number them as in the generation of the request",
  };
}

function tooMuch(what: string, bytes: number): FailureText {
  return {
    code: "limit",
    headline: `${what}: the store holds at most ${bytes} bytes here`,
    hint: "the store is for small values; data goes through collectives",
  };
}

/** A rank for the store: a receiver of replies. */
export interface Peer {
  /** Host and process, for messages. */
  readonly label: string;
  send(reply: Reply): void;
}

/** A rank's place in a generation. */
export interface Member {
  readonly peer: Peer;
  /** Its rank in the generation that was joined. */
  readonly initialRank: number;
  state: "here" | "lost" | "left";
  reason: string;
  /** The answer to all questions once it has left. */
  status?: string | undefined;
}

/** The required parts of a failure; the rest has defaults. */
export type FailureText = Pick<Failure, "code" | "headline" | "hint">;

/** A failure as it is sent: its required parts, and more where there are more. */
export type PartialFailure = Partial<Failure> & FailureText;

/** Ranks in a state. */
function ranksWhere(
  members: readonly Member[],
  which: (member: Member, rank: number) => boolean,
): number[] {
  return members.flatMap((member, rank) => (which(member, rank) ? [rank] : []));
}

/** The error of a wait for ranks that are gone, with the reason of the first. */
export function lossFailure(
  members: readonly Member[],
  what: string,
  gone: readonly number[],
): PartialFailure {
  const member = members[gone[0] ?? 0];
  const how = member?.state === "left" ? "has left" : `was lost: ${member?.reason}`;
  const all = gone.length > 1 ? `${ranksText(gone)} are gone; ` : "";
  return {
    code: "gone",
    headline: `${what}: ${all}rank ${gone[0]} ${how}`,
    hint: "comm.rebuild() continues with those that are left",
    ranks: gone,
  };
}
