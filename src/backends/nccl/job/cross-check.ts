/** Compares the calls of ranks in different processes before NCCL sees them: they tell each other through the job's store. */
import { numbersText, rankRows, ranksText } from "../../../api/error-text.ts";
import {
  type CallDigest,
  CollectiveMismatchError,
  type CommError,
  type CommInfo,
  RemoteRankError,
} from "../../../api/index.ts";
import { longestTimerMs, pause } from "../common/async.ts";
import type { Membership } from "../rendezvous/index.ts";

/** When the ranks of several processes compare their calls. */
export type CompareCalls = "off" | "once" | "always";

/** The first and the longest interval of queries for ranks that have let a call through. */
const [firstAskMs, mostAskMs] = [500, 600_000];

/** The job's side of comparisons. */
interface CrossCheckHost {
  /** A name for the communicator that all processes give it, and give no other. */
  readonly keyOf: (comm: CommInfo) => string;
  /** Notes that this rank compares a call with the others': they may ask. */
  readonly onCompare: (comm: CommInfo, number: number) => void;
  /** World ranks that have not handed a call over, or do not say. */
  readonly notSubmitted: (comm: CommInfo, number: number) => Promise<readonly number[]>;
  readonly waits: StoreWaits;
}

/** The comparisons of one process. */
export class CrossCheck {
  readonly #membership: Pick<Membership, "rank" | "size" | "exchange">;
  readonly #mode: CompareCalls;
  readonly #job: CrossCheckHost;
  /** Kinds of calls that the ranks of a communicator have agreed on: the same ones in every process. */
  readonly #matched = new WeakMap<CommInfo, Set<string>>();

  constructor(
    membership: Pick<Membership, "rank" | "size" | "exchange">,
    mode: CompareCalls,
    job: CrossCheckHost,
  ) {
    this.#membership = membership;
    this.#mode = mode;
    this.#job = job;
  }

  /** True where calls of some communicator are compared. */
  get isEnabled(): boolean {
    return this.#mode !== "off";
  }

  /** `Session.compare`. All ranks of the job meet in the store: on a communicator of some of them nothing is compared. */
  compare<Fault>(
    comm: CommInfo,
    number: number,
    own: () => CallDigest,
    judge: (words: readonly string[]) => Fault | undefined,
  ): Promise<Fault | undefined> | undefined {
    if (!this.isEnabled || comm.ranks.length !== this.#membership.size) return undefined;
    const { kind, details } = own();
    const agreed = this.#matchedKinds(comm);
    if (this.#mode === "once" && agreed.has(kind)) return undefined;
    return this.#exchangeDetails(comm, number, details).then((told) => {
      const fault = judge(told);
      // Only what all ranks know to be agreed on may be let through by each of them.
      if (fault === undefined) agreed.add(kind);
      return fault;
    });
  }

  #matchedKinds(comm: CommInfo): Set<string> {
    let agreed = this.#matched.get(comm);
    if (agreed === undefined) {
      agreed = new Set();
      this.#matched.set(comm, agreed);
    }
    return agreed;
  }

  /** The words of all ranks, by rank of the communicator. */
  async #exchangeDetails(comm: CommInfo, number: number, words: string): Promise<string[]> {
    const key = `call ${this.#job.keyOf(comm)} ${number}`;
    this.#job.onCompare(comm, number);
    const asking = this.#job.waits.run(comm, (bounds) => {
      const exchange = this.#membership.exchange(key, new TextEncoder().encode(words), bounds);
      if (this.#mode === "always") return exchange;
      exchange.catch(() => undefined);
      return Promise.race([exchange, this.#watchOthers(comm, number, bounds.signal)]);
    });
    const told = await asking.catch((error) => Promise.reject(peerLostError(comm, error)));
    return comm.ranks.map((rank) => new TextDecoder().decode(told[rank]));
  }

  /** Rejects once another rank has let its call through: it agreed on that one before, and this rank's is another. */
  async #watchOthers(comm: CommInfo, number: number, over: AbortSignal): Promise<never> {
    for (let askMs = firstAskMs; ; askMs = Math.min(2 * askMs, mostAskMs)) {
      await pause(askMs, over, { unref: true });
      const behind = over.aborted ? [] : await this.#job.notSubmitted(comm, number);
      // No caller is left.
      if (over.aborted) return new Promise<never>(() => undefined);
      const own = comm.ranks.indexOf(this.#membership.rank);
      const ahead = comm.ranks.flatMap((worldRank, rank) =>
        rank === own || behind.includes(worldRank) ? [] : [rank],
      );
      if (ahead.length > 0) throw aheadError(comm, number, own, ahead);
    }
  }
}

function aheadError(
  comm: CommInfo,
  number: number,
  own: number,
  ahead: readonly number[],
): CollectiveMismatchError {
  const values = comm.ranks.map((_, rank) => {
    if (rank === own) return "one that is new on the communicator";
    return ahead.includes(rank) ? "one that was agreed on before" : "no news";
  });
  const rows = values.map((value, rank) => ({ rank, cells: [value] }));
  return new CollectiveMismatchError(
    {
      headline: `call ${number} on "${comm.name}": rank ${own} makes another call than ${ranksText(ahead)}`,
      table: [["rank", "call"], ...rankRows(rows, numbersText)],
      hint: 'the communicator was aborted here, and waits elsewhere: compareCalls: "always" reports it on all ranks in time',
    },
    {
      ...{ rank: own, size: comm.ranks.length, comm: comm.name, call: number },
      ...{ ranks: [own, ...ahead].sort((a, b) => a - b), field: "call", values },
    },
  );
}

/** Bounds of such a wait: by itself it lasts as long as a timer can. Deadlines of calls, closing and losses end it. */
interface StoreWait {
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** The waits of one process. */
export class StoreWaits {
  /** By the communicator's number: that of all ranks is one object to the session and another to its callers. */
  readonly #open = new Map<number, Set<AbortController>>();

  /** Waits on behalf of a communicator; what is left of it ends with `wait`. */
  async run<T>({ id }: CommInfo, wait: (bounds: StoreWait) => Promise<T>): Promise<T> {
    const over = new AbortController();
    const open = this.#open.get(id) ?? new Set();
    this.#open.set(id, open.add(over));
    try {
      return await wait({ timeoutMs: longestTimerMs, signal: over.signal });
    } finally {
      open.delete(over);
      if (open.size === 0) this.#open.delete(id);
      over.abort();
    }
  }

  /** The communicator is over. */
  cancel({ id }: CommInfo): void {
    for (const wait of this.#open.get(id) ?? []) wait.abort();
  }
}

/** The store names ranks of the job; the error of a call names those of its communicator. Any other error stays as it was. */
export function peerLostError(comm: CommInfo, error: unknown): unknown {
  const { code, ranks = [] } = error as Partial<CommError>;
  if (code !== "ERR_COMM_REMOTE") return error;
  const own = ranks.map((rank) => comm.ranks.indexOf(rank));
  return new RemoteRankError(
    {
      headline: `${ranksText(own)} of "${comm.name}" will not make this call: its process has left the job, or is gone`,
      hint: "comm.rebuild() goes on with the others",
    },
    { ranks: own, cause: error },
  );
}
