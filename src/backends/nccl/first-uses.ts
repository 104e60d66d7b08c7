/**
 * The ranks that a call connects for the first time come together in the job's store before NCCL is given the call.
 *
 * NCCL connects two ranks in the first message between them, and registers symmetric memory in the first call that uses it.
 * It waits there for the other ranks on the thread that makes the call, which is JavaScript's: while one of them did not
 * come, no deadline, no signal and no loss would be heard.
 */

import { ranksText } from "../../api/error-text.ts";
import {
  type CallSet,
  type CommError,
  type CommInfo,
  type HalfTransfer,
  RemoteRankError,
} from "../../api/index.ts";
import type { NcclCommunicator } from "./communicators.ts";
import { type Pair, pairsOf } from "./pairs.ts";
import type { Meeting, Membership } from "./rendezvous/index.ts";
import type { StoreWaits } from "./store-waits.ts";

/** The first uses of one process's connections. */
export class FirstUses {
  readonly #membership: Pick<Membership, "meet">;
  readonly #keyOf: (comm: CommInfo) => string;
  readonly #waits: StoreWaits;
  /** Pairs of ranks that have come together, by communicator. */
  readonly #met = new WeakMap<CommInfo, Set<string>>();

  /** `keyOf` names a communicator alike in every process. */
  constructor(
    membership: Pick<Membership, "meet">,
    keyOf: (comm: CommInfo) => string,
    waits: StoreWaits,
  ) {
    this.#membership = membership;
    this.#keyOf = keyOf;
    this.#waits = waits;
  }

  /** `Session.convene`: nothing on a communicator that is over. A rank that waits counts as having made the call. */
  call(
    comm: NcclCommunicator | undefined,
    { collective, calls, number }: CallSet,
  ): Promise<void> | undefined {
    // A recording has met all whom its replays need.
    if (comm === undefined || collective === "replay") return undefined;
    const { info, size, windows } = comm;
    const rows = calls.flatMap((call) => call.recorded?.calls ?? call);
    const pairs = rows.flatMap((call) => pairsOf(call, size));
    const meetings = this.#unmet(info, pairs);
    if (rows.some((call) => windows.lacks(call))) {
      const key = `windows ${this.#keyOf(info)} ${number}`;
      meetings.push({ key, ranks: info.ranks });
    }
    if (meetings.length === 0) return undefined;
    comm.count(number);
    return this.#meet(info, meetings, pairs);
  }

  /** `Session.conveneExchange`. */
  messages(
    comm: NcclCommunicator | undefined,
    halves: readonly HalfTransfer[],
  ): Promise<void> | undefined {
    if (comm === undefined) return undefined;
    const pairs = halves.flatMap(({ direction, peer, call }): Pair[] => {
      // Such a message is not sent.
      if (call.count === 0) return [];
      return [direction === "send" ? [call.rank, peer] : [peer, call.rank]];
    });
    const meetings = this.#unmet(comm.info, pairs);
    return meetings.length === 0 ? undefined : this.#meet(comm.info, meetings, pairs);
  }

  /** The meetings of those pairs that have had none. */
  #unmet(comm: CommInfo, pairs: readonly Pair[]): Meeting[] {
    const met = this.#met.get(comm);
    const missing = new Map<string, Meeting>();
    for (const [from, to] of pairs) {
      const name = nameOf([from, to]);
      if (met?.has(name) === true) continue;
      const ranks = [comm.ranks[from] as number, comm.ranks[to] as number];
      missing.set(name, { key: `pair ${this.#keyOf(comm)} ${name}`, ranks });
    }
    return [...missing.values()];
  }

  async #meet(comm: CommInfo, meetings: readonly Meeting[], pairs: readonly Pair[]): Promise<void> {
    try {
      await this.#waits.on(comm, (bounds) => this.#membership.meet(meetings, bounds));
    } catch (error) {
      throw asSeenOn(comm, error);
    }
    const met = this.#met.get(comm) ?? new Set();
    this.#met.set(comm, met);
    for (const pair of pairs) met.add(nameOf(pair));
  }
}

function nameOf([from, to]: Pair): string {
  return `${from}>${to}`;
}

/** The job tells of its ranks; a call is told of those of its communicator. */
function asSeenOn(comm: CommInfo, error: unknown): unknown {
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
