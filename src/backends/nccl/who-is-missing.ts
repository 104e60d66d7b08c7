/** Who keeps a rank waiting: ranks of other processes are asked what they have made. All ranks here are those of the job. */
import type { CommInfo, HalfTransfer } from "../../api/index.ts";
import { type Ends, type Made, messagesOf } from "./made.ts";
import { keepWaiting } from "./messages-wait.ts";
import type { Membership } from "./rendezvous/index.ts";
import { RollCall } from "./roll-call.ts";

/** What a process says of collective calls, and of messages: by the communicator's key. */
type CallWords = Readonly<Record<string, number>>;
type EndWords = Readonly<Record<string, Ends>>;

/** Asks, and answers others, on behalf of one process. */
export class WhoIsMissing {
  readonly #membership: Membership;
  readonly #keyOf: (comm: CommInfo) => string;
  readonly #calls: RollCall;
  readonly #ends: RollCall;

  /** `keyOf` names a communicator alike in every process; `made` are those that this one has made something on, by name. */
  constructor(
    membership: Membership,
    keyOf: (comm: CommInfo) => string,
    made: ReadonlyMap<string, Made>,
  ) {
    const words = (say: (made: Made) => unknown) => (): string =>
      JSON.stringify(Object.fromEntries(Array.from(made, ([key, each]) => [key, say(each)])));
    this.#membership = membership;
    this.#keyOf = keyOf;
    this.#calls = new RollCall(
      membership,
      "calls",
      words(({ calls }) => calls),
    );
    this.#ends = new RollCall(
      membership,
      "messages",
      words((each) => each.ends()),
    );
  }

  /** Ranks of a communicator that have not made call `number`, or do not answer. */
  async ofCall(comm: CommInfo, number: number): Promise<number[]> {
    const { rank, size } = this.#membership;
    const asked = await this.#calls.ask();
    const key = this.#keyOf(comm);
    const others = comm.ranks.filter((each) => each !== rank && each < size);
    const missing = await Promise.all(
      others.map(async (each) => {
        const words = await asked.of(each);
        const made = words === undefined ? {} : (JSON.parse(words) as CallWords);
        return (made[key] ?? 0) > number ? [] : [each];
      }),
    );
    asked.over();
    return missing.flat();
  }

  /** Ranks without which messages that were made together cannot go on. */
  async ofMessages(comm: CommInfo, halves: readonly HalfTransfer[]): Promise<number[]> {
    const { ranks } = comm;
    const key = this.#keyOf(comm);
    const asked = await this.#ends.ask();
    const of = async (rank: number): Promise<Ends> => {
      const words = await asked.of(ranks[rank] as number);
      const told = words === undefined ? {} : (JSON.parse(words) as EndWords);
      return told[key] ?? { made: [], open: [] };
    };
    const size = ranks.length;
    const own = ranks.indexOf(this.#membership.rank);
    const missing = await keepWaiting({ size, of }, own, messagesOf(size, halves));
    asked.over();
    return missing.map((rank) => ranks[rank] as number);
  }

  /** Answers no more. What this process has made by now is left for those who ask later. */
  end(): void {
    this.#calls.end();
    this.#ends.end();
  }
}
