/** The server's side: receives from all workers at once, replies in the order of arrival, and defers the rest. */
import type { ParameterArray, ParameterDType } from "../parameter-set.ts";
import { type Connection, replyCodes, requestKinds } from "./protocol.ts";
import type { ServerReport, ServerStore } from "./store.ts";

/** A push that was applied. */
export interface AcceptedPush {
  /** Rank of the worker. */
  readonly worker: number;
  /** The version that it was computed from. */
  readonly from: number;
  /** The version that it created. */
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
  readonly kind: number;
  readonly version: number;
  readonly gradients: ReadonlyMap<ParameterDType, ParameterArray>;
}

/** Serves until every worker has left. */
export class Service {
  readonly #store: ServerStore;
  readonly #connections: ReadonlyMap<number, Connection>;
  readonly #policy: ServicePolicy;
  readonly #admission: Admission;
  readonly #received: Request[] = [];
  #deferred: Request[] = [];
  #wake: (() => void) | undefined;
  #failure: { readonly error: unknown } | undefined;

  constructor(
    store: ServerStore,
    connections: ReadonlyMap<number, Connection>,
    policy: ServicePolicy,
  ) {
    this.#store = store;
    this.#connections = connections;
    this.#policy = policy;
    this.#admission = new Admission(policy.staleness);
  }

  async run(): Promise<ServerReport> {
    const present = new Set(this.#connections.keys());
    for (const worker of present) this.#receiveFrom(worker);
    while (present.size > 0) {
      const request = await this.#next();
      if (request.kind === requestKinds.leave) {
        present.delete(request.worker);
        this.#admission.release(request.worker);
      } else if (!(await this.#tryReply(request))) {
        this.#store.count("held");
        this.#deferred.push(request);
      }
      await this.#retryDeferred();
    }
    return this.#store.report;
  }

  /** Receives the next request of a worker. */
  #receiveFrom(worker: number): void {
    const connection = this.#connections.get(worker) as Connection;
    const receive = async (): Promise<Request> => {
      const [kind, version] = await connection.recvHeader();
      const gradients =
        kind === requestKinds.push ? await connection.recvArrays(this.#store.set) : new Map();
      return { worker, kind, version, gradients };
    };
    receive().then(
      (request) => {
        this.#received.push(request);
        this.#wake?.();
      },
      (error: unknown) => {
        this.#failure ??= { error };
        this.#wake?.();
      },
    );
  }

  async #next(): Promise<Request> {
    while (this.#received.length === 0 && this.#failure === undefined) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#failure !== undefined) throw this.#failure.error;
    return this.#received.shift() as Request;
  }

  /** The longest waiting worker comes first; requests that one reply unblocks are served too. */
  async #retryDeferred(): Promise<void> {
    for (let at = 0; at < this.#deferred.length; at++) {
      if (!(await this.#tryReply(this.#deferred[at] as Request))) continue;
      this.#deferred.splice(at, 1);
      at = -1;
    }
  }

  /** Replies to a request and receives the next one; `false` where it has to wait. */
  async #tryReply(request: Request): Promise<boolean> {
    const { worker, kind } = request;
    const connection = this.#connections.get(worker) as Connection;
    if (kind === requestKinds.pull) {
      if (this.#policy.mode === "block") {
        this.#admission.release(worker);
        if (!this.#admission.mayPull()) return false;
        this.#admission.pull(worker, this.#store.version);
      }
      await connection.sendHeader([replyCodes.accepted, this.#store.version, 0]);
      await connection.sendArrays(this.#store.set, "values");
    } else {
      const code = this.#replyTo(request);
      if (code === undefined) return false;
      const staleness = this.#store.version - request.version;
      if (code === replyCodes.accepted) await this.#apply(request, staleness);
      else this.#store.count(code === replyCodes.stale ? "rejected" : "refused");
      this.#admission.release(worker);
      await connection.sendHeader([code, this.#store.version, staleness]);
    }
    this.#receiveFrom(worker);
    return true;
  }

  /** The reply to a push; `undefined` where it has to wait. */
  #replyTo({ worker, version, gradients }: Request): number | undefined {
    const { mode, staleness } = this.#policy;
    const present = this.#store.version;
    if (version > present) return replyCodes.future;
    for (const array of gradients.values()) {
      if (!array.every((each: number) => Number.isFinite(each))) return replyCodes.nonFinite;
    }
    if (mode === "reject") {
      const isStale = present - version > staleness;
      return isStale ? replyCodes.stale : replyCodes.accepted;
    }
    if (this.#admission.leaseOf(worker) !== version) return replyCodes.notPulled;
    return this.#admission.mayPush(worker, present) ? replyCodes.accepted : undefined;
  }

  async #apply({ worker, version, gradients }: Request, staleness: number): Promise<void> {
    this.#store.apply(gradients, staleness);
    const newVersion = this.#store.version;
    await this.#policy.onAccepted({ worker, from: version, version: newVersion, staleness });
  }
}

/**
 * Orders pulls and pushes so that no push is too late. A pull without its push is a lease of its version; every push of another
 * worker increases its staleness by one.
 *
 * Invariant: pushing the leases in the order of their versions keeps each within the bound. A pull or a push that would break
 * it waits. The oldest lease may therefore always be pushed, so no worker waits for ever while others push or leave.
 */
export class Admission {
  readonly #bound: number;
  /** Versions by worker, in the order of pulls, and so of versions. */
  readonly #leases = new Map<number, number>();

  /** `bound`: most pushes of others between a pull and its push. */
  constructor(bound: number) {
    this.#bound = bound;
  }

  /** The version that a worker has pulled and not pushed. */
  leaseOf(worker: number): number | undefined {
    return this.#leases.get(worker);
  }

  /** A further lease is pushed last, after all others. */
  mayPull(): boolean {
    return this.#leases.size <= this.#bound;
  }

  /** A worker pulls the present version. */
  pull(worker: number, version: number): void {
    this.#leases.delete(worker);
    this.#leases.set(worker, version);
  }

  /** True if the others' leases stay within the bound after this worker's push. */
  mayPush(worker: number, version: number): boolean {
    const others = [...this.#leases].filter(([each]) => each !== worker).map(([, lease]) => lease);
    return others.every((lease, place) => version + 1 + place - lease <= this.#bound);
  }

  /** Ends a lease, pushed or not. */
  release(worker: number): void {
    this.#leases.delete(worker);
  }
}
