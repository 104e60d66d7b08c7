/** The server's side: receives from all workers at once, answers in the order of arrival, and delays the rest. */
import type { ParameterArray, ParameterDType } from "../parameter-set.ts";
import { Admission } from "./admission.ts";
import { answers, asks, type Line } from "./line.ts";
import type { ServerReport, ServerStore } from "./store.ts";

/** A push that was applied. */
export interface AcceptedPush {
  /** Rank of the worker. */
  readonly worker: number;
  /** The version that it was computed from. */
  readonly from: number;
  /** The version that it made. */
  readonly version: number;
  /** Pushes of others in between. */
  readonly staleness: number;
}

/** The treatment of pushes. */
export interface ServicePolicy {
  readonly staleness: number;
  readonly mode: "block" | "reject";
  readonly onAccepted: (push: AcceptedPush) => unknown;
}

interface Request {
  readonly worker: number;
  readonly ask: number;
  readonly version: number;
  readonly gradients: ReadonlyMap<ParameterDType, ParameterArray>;
}

/** Serves until every worker has left. */
export class Service {
  readonly #store: ServerStore;
  readonly #lines: ReadonlyMap<number, Line>;
  readonly #policy: ServicePolicy;
  readonly #admission: Admission;
  readonly #arrived: Request[] = [];
  #held: Request[] = [];
  #wake: (() => void) | undefined;
  #failure: { readonly error: unknown } | undefined;

  constructor(store: ServerStore, lines: ReadonlyMap<number, Line>, policy: ServicePolicy) {
    this.#store = store;
    this.#lines = lines;
    this.#policy = policy;
    this.#admission = new Admission(policy.staleness);
  }

  async run(): Promise<ServerReport> {
    const present = new Set(this.#lines.keys());
    for (const worker of present) this.#listen(worker);
    while (present.size > 0) {
      const request = await this.#next();
      if (request.ask === asks.leave) {
        present.delete(request.worker);
        this.#admission.release(request.worker);
      } else if (!(await this.#answered(request))) {
        this.#store.count("held");
        this.#held.push(request);
      }
      await this.#answerHeld();
    }
    return this.#store.report;
  }

  /** Hears the next request of a worker, whenever it comes. */
  #listen(worker: number): void {
    const line = this.#lines.get(worker) as Line;
    const heard = async (): Promise<Request> => {
      const [ask, version] = await line.hear();
      const gradients = ask === asks.push ? await line.take(this.#store.set) : new Map();
      return { worker, ask, version, gradients };
    };
    heard().then(
      (request) => {
        this.#arrived.push(request);
        this.#wake?.();
      },
      (error: unknown) => {
        this.#failure ??= { error };
        this.#wake?.();
      },
    );
  }

  async #next(): Promise<Request> {
    while (this.#arrived.length === 0 && this.#failure === undefined) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#failure !== undefined) throw this.#failure.error;
    return this.#arrived.shift() as Request;
  }

  /** The longest waiting worker comes first; work that one answer makes possible is done too. */
  async #answerHeld(): Promise<void> {
    for (let at = 0; at < this.#held.length; at++) {
      if (!(await this.#answered(this.#held[at] as Request))) continue;
      this.#held.splice(at, 1);
      at = -1;
    }
  }

  /** Answers a request and listens again; `false` where it has to wait. */
  async #answered(request: Request): Promise<boolean> {
    const { worker, ask } = request;
    const line = this.#lines.get(worker) as Line;
    if (ask === asks.pull) {
      if (this.#policy.mode === "block") {
        this.#admission.release(worker);
        if (!this.#admission.mayPull()) return false;
        this.#admission.pull(worker, this.#store.version);
      }
      await line.say([answers.accepted, this.#store.version, 0]);
      await line.give(this.#store.set, "values");
    } else {
      const answer = this.#judged(request);
      if (answer === undefined) return false;
      const staleness = this.#store.version - request.version;
      if (answer === answers.accepted) await this.#apply(request, staleness);
      else this.#store.count(answer === answers.stale ? "rejected" : "refused");
      this.#admission.release(worker);
      await line.say([answer, this.#store.version, staleness]);
    }
    this.#listen(worker);
    return true;
  }

  /** The answer to a push; `undefined` where it has to wait. */
  #judged({ worker, version, gradients }: Request): number | undefined {
    const { mode, staleness } = this.#policy;
    const present = this.#store.version;
    if (version > present) return answers.future;
    for (const array of gradients.values()) {
      if (!array.every((each: number) => Number.isFinite(each))) return answers.nonFinite;
    }
    if (mode === "reject") {
      const isStale = present - version > staleness;
      return isStale ? answers.stale : answers.accepted;
    }
    if (this.#admission.leaseOf(worker) !== version) return answers.notPulled;
    return this.#admission.mayPush(worker, present) ? answers.accepted : undefined;
  }

  async #apply({ worker, version, gradients }: Request, staleness: number): Promise<void> {
    this.#store.apply(gradients, staleness);
    const made = this.#store.version;
    await this.#policy.onAccepted({ worker, from: version, version: made, staleness });
  }
}
