/**
 * A parameter server: one rank keeps the parameters and the optimizer, the others pull values and push gradients at any time.
 * The age of a push's values is bounded.
 *
 * Every worker has a communicator of its own with the server, with streams of its own, so none waits for another's messages.
 * This needs all ranks in one process, where a receive is queued on a stream when its message is sent. With the sender in
 * another process it would be queued at once, and would occupy the server's GPU until that worker makes a request.
 */
import { CommClosedError, type Communicator, UnsupportedError } from "../../api/index.ts";
import {
  assertOptions,
  type Complete,
  invalid,
  type OptionKinds,
  textOf,
} from "../../api/option-kinds.ts";
import {
  assertCommunicator,
  assertOneOf,
  assertParameters,
  factsOf,
  isCount,
} from "../argument-checks.ts";
import { NonFiniteGradientError } from "../errors.ts";
import { ruleFault, type UpdateRule } from "../optimizers/rules.ts";
import { isParameterArray, type ParameterArray, type ParameterSet } from "../parameter-set.ts";
import { assertSameOnRanks } from "../rank-comparison.ts";
import { assertState, assertStates, type RankStateful, type State } from "../state.ts";
import { Connection, replyCodes, requestKinds } from "./protocol.ts";
import { type AcceptedPush, Service } from "./service.ts";
import { type ServerReport, ServerStore } from "./store.ts";

/** Options of `ParameterServer.create`; the same on every rank, except `rule` and `onAccepted`, which only the server uses. */
export interface ParameterServerOptions {
  /** The rule that applies pushes. */
  readonly rule: UpdateRule;
  /** The rank that serves; 0 when left out. */
  readonly server?: number | undefined;
  /** Most pushes of others between a pull and its push; with `reject` earlier ones of the same pull count too. */
  readonly staleness: number;
  /**
   * `block`, when left out: pulls and pushes wait while they would make a push of another worker too late. `reject`: no call
   * waits, and a late push is not applied.
   */
  readonly mode?: "block" | "reject" | undefined;
  /**
   * Called for every applied push, in order. The server awaits a returned promise before its reply and its next request. So the
   * function may save: `state` has exactly this version.
   */
  readonly onAccepted?: ((push: AcceptedPush) => unknown) | undefined;
}

const kinds: OptionKinds<ParameterServerOptions> = {
  ...{ rule: true, server: true, staleness: true, mode: true, onAccepted: "function" },
};

/** The outcome of a push. */
export interface PushResult {
  /** `false`: the push was too late, with `reject`; pull and compute again. */
  readonly accepted: boolean;
  /** The server's version after it. */
  readonly version: number;
  /** Pushes of others since the pull; with `reject` also earlier ones of this worker, of the same pull. */
  readonly staleness: number;
}

/** One rank's part: `serve` on the server; `pull`, `push` and `leave` on workers. Made by `ParameterServer.create`. */
export class ParameterServer implements RankStateful {
  readonly isServer: boolean;
  readonly parameters: ParameterSet;
  readonly #comm: Communicator;
  readonly #options: Complete<ParameterServerOptions>;
  readonly #connections: ReadonlyMap<number, Connection>;
  /** Only on the server. */
  readonly #store: ServerStore | undefined;
  #hasLeft = false;
  /** The request of this worker that has no reply yet. */
  #pending: string | undefined;

  private constructor(
    comm: Communicator,
    parameters: ParameterSet,
    options: Complete<ParameterServerOptions>,
    connections: ReadonlyMap<number, Connection>,
  ) {
    this.isServer = comm.rank === options.server;
    this.parameters = parameters;
    this.#comm = comm;
    this.#options = options;
    this.#connections = connections;
    this.#store = this.isServer ? new ServerStore(parameters, options.rule) : undefined;
  }

  /**
   * Connects every worker with the server. The server's values are the first version: 0, or the version of the restored state.
   *
   * - **Collective**: the same parameters, in any order, and the same server, staleness and mode. **Cost**: two comparisons
   *   and a split for each worker.
   *
   * @throws InvalidArgumentError on this rank for an invalid option.
   * @throws UnsupportedError on all ranks, before any call, where they live in several processes.
   * @throws CollectiveMismatchError on all ranks for a parameter or option that differs.
   * @example
   * const server = await ParameterServer.create(comm, model, { rule: adamW({ learningRate: 1e-3 }), staleness: 4 });
   */
  static async create(
    comm: Communicator,
    parameters: ParameterSet,
    options: ParameterServerOptions,
  ): Promise<ParameterServer> {
    assertCommunicator("ParameterServer.create", comm);
    assertOneProcess(comm);
    assertParameters("ParameterServer.create", parameters);
    assertOptions("ParameterServer.create", options, kinds);
    const { rule, server = 0, staleness, mode = "block", onAccepted = () => {} } = options;
    if (!isCount(server) || server >= comm.size) {
      throw invalid(
        "ParameterServer.create",
        "server",
        textOf(server),
        `a rank from 0 to ${comm.size - 1}`,
      );
    }
    if (!isCount(staleness)) {
      throw invalid(
        "ParameterServer.create",
        "staleness",
        textOf(staleness),
        "an integer of at least 0",
      );
    }
    assertOneOf("ParameterServer.create", "mode", mode, ["block", "reject"]);
    const fault = comm.rank === server ? ruleFault(rule) : undefined;
    if (fault !== undefined) {
      const needed = "an update rule, such as sgd({ learningRate: 0.1 })";
      throw invalid("ParameterServer.create", "rule", fault, needed);
    }
    // Two comparisons, because a parameter may have the name of an option.
    await assertSameOnRanks(comm, {
      action: "ParameterServer.create",
      kind: "option",
      lines: new Map(
        Object.entries({ server, staleness, mode }).map(([name, value]) => [name, String(value)]),
      ),
      hint: "give every rank the same options",
    });
    await assertSameOnRanks(comm, {
      action: "ParameterServer.create",
      kind: "parameter",
      lines: new Map(
        [...parameters].map(({ name, dtype, shape }) => [name, `${dtype} [${shape.join(", ")}]`]),
      ),
      hint: "declare the same parameters on every rank, in any order",
    });
    return new ParameterServer(
      comm,
      parameters,
      { rule, server, staleness, mode, onAccepted },
      await connectPairs(comm, server),
    );
  }

  /**
   * Serves until every worker has left; `parameters` hold the last version then. Requests are answered in the order of arrival.
   *
   * @throws InvalidArgumentError on a worker. RemoteRankError when a worker threw.
   */
  async serve(): Promise<ServerReport> {
    this.#assertRole("serve", true);
    this.#hasLeft = true;
    const store = this.#store as ServerStore;
    const report = await new Service(store, this.#connections, this.#options).run();
    for (const connection of this.#connections.values()) await connection.close();
    return report;
  }

  /**
   * Takes over the server's values; resolves to their version. With `block` it may have to wait until others have pushed.
   *
   * - **Cost**: 48 bytes and the values.
   */
  pull(): Promise<number> {
    return this.#request("pull", async (connection) => {
      await connection.sendHeader([requestKinds.pull, 0, 0]);
      const [, version] = await connection.recvHeader();
      for (const [dtype, values] of await connection.recvArrays(this.parameters)) {
        this.parameters.values(dtype).set(values);
      }
      return version;
    });
  }

  /**
   * Sends the server gradients computed from the values of a version: those of `parameters`, or others by name. With `block`
   * every push needs a pull of its own and may have to wait; a refused push uses the pull up.
   *
   * - **Lengths**: a gradient for each parameter, of its length; never truncated or padded.
   * - **Cost**: the gradients and 48 bytes.
   *
   * @throws InvalidArgumentError, without applying any, for a gradient that is missing, unknown or of another length, or while
   * another request is under way. Also for a version that the server has not reached, or with `block` one that was not pulled.
   * @throws NonFiniteGradientError for infinities or NaN, without applying any gradient.
   */
  push(version: number, gradients?: Readonly<Record<string, ParameterArray>>): Promise<PushResult> {
    return this.#request("push", async (connection) => {
      if (!isCount(version)) {
        throw invalid("ParameterServer.push", "version", textOf(version), "one that pull gave");
      }
      if (gradients !== undefined) this.#take(gradients);
      await connection.sendHeader([requestKinds.push, version, 0]);
      await connection.sendArrays(this.parameters, "gradients");
      const [code, now, staleness] = await connection.recvHeader();
      if (code === replyCodes.nonFinite) throw this.#nonFinite();
      if (code === replyCodes.future) {
        throw invalid(
          "ParameterServer.push",
          "version",
          textOf(version),
          `at most ${now}, the server's`,
        );
      }
      if (code === replyCodes.notPulled) {
        throw invalid(
          "ParameterServer.push",
          "version",
          `${version}, not pulled since the last push`,
          "a pull first",
        );
      }
      return { accepted: code === replyCodes.accepted, version: now, staleness };
    });
  }

  /** Ends the requests of this worker at the server. */
  leave(): Promise<void> {
    return this.#request("leave", async (connection) => {
      this.#hasLeft = true;
      await connection.sendHeader([requestKinds.leave, 0, 0]);
      await connection.close();
    });
  }

  /**
   * On the server its values, the optimizer's state, and the counts of its report; their memory is shared. On workers it is
   * nearly empty. Belongs to `perRank` in checkpoints of all ranks, which any number of ranks may load.
   */
  state(): State {
    const { values = {}, tensors = {} } = this.#store?.state() ?? {};
    return { values: { ...values, server: this.#options.server }, tensors };
  }

  /**
   * Continues from the state of an earlier server, before this one serves: the next push creates the version after its last.
   *
   * @throws InvalidArgumentError for another model, rule or server rank; nothing is changed.
   * @throws CommClosedError once this rank has served or left.
   */
  restore(state: State): void {
    this.#assertPresent("restore");
    assertState("restore", state);
    const { server } = this.#options;
    const found = state.values["server"];
    if (found !== server)
      throw invalid("ParameterServer.restore", "server", textOf(found), `rank ${server}`);
    this.#store?.restore(state);
  }

  /** As `restore`, from the states of another number of ranks with any server rank. */
  reshard(states: readonly State[], _rank: number, _size: number): void {
    assertStates("reshard", states);
    const { server } = this.#options;
    const served = states.find(({ values }, rank) => values["server"] === rank);
    if (served === undefined)
      throw invalid("ParameterServer.reshard", "states", "no server's", "one");
    this.restore({ ...served, values: { ...served.values, server } });
  }

  /** Makes a request of this worker: one at a time, since replies come in the order of requests. */
  async #request<T>(action: string, exchange: (connection: Connection) => Promise<T>): Promise<T> {
    this.#assertRole(action, false);
    if (this.#pending !== undefined) {
      throw invalid(
        `ParameterServer.${action}`,
        "request",
        `a ${this.#pending} that is not answered yet`,
        "one at a time",
      );
    }
    this.#pending = action;
    try {
      return await exchange(this.#connections.get(this.#comm.rank) as Connection);
    } finally {
      this.#pending = undefined;
    }
  }

  #assertRole(action: string, server: boolean): void {
    const { rank } = this.#comm;
    if (this.isServer !== server) {
      const needed = server ? `the server, ${this.#options.server}` : "a worker";
      throw invalid(`ParameterServer.${action}`, "rank", textOf(rank), needed);
    }
    this.#assertPresent(action);
  }

  #assertPresent(action: string): void {
    if (!this.#hasLeft) return;
    throw new CommClosedError(
      {
        headline: `ParameterServer.${action}: this rank has ${this.isServer ? "served" : "left"}`,
        hint: "create another ParameterServer on all ranks",
      },
      factsOf(this.#comm),
    );
  }

  /** Checks all gradients before any is taken. */
  #take(gradients: Readonly<Record<string, ParameterArray>>): void {
    for (const name of Object.keys(gradients ?? {})) this.parameters.get(name);
    for (const { name, length } of this.parameters) {
      const found = Object.hasOwn(gradients ?? {}, name) ? gradients[name] : undefined;
      const isArray = isParameterArray(found);
      if (isArray && found.length === length) continue;
      const other = found === undefined ? "no gradient" : textOf(found);
      const text = isArray ? `${found.length} elements` : other;
      throw invalid(
        "ParameterServer.push",
        name,
        text,
        `a Float32Array or Float64Array of ${length} elements`,
      );
    }
    for (const { name, gradient } of this.parameters) {
      gradient.set(gradients[name] as ParameterArray);
    }
  }

  #nonFinite(): NonFiniteGradientError {
    const parameters = [...this.parameters]
      .filter(({ gradient }) => !gradient.every((each: number) => Number.isFinite(each)))
      .map(({ name }) => name);
    return new NonFiniteGradientError(
      {
        headline: `ParameterServer.push: the gradient of ${parameters.map((each) => `"${each}"`).join(", ")} is not finite`,
        hint: "lower the learning rate, or look at the samples; nothing was applied",
      },
      { parameters, rank: this.#comm.rank, field: parameters[0] },
    );
  }
}

/** The communicator of the server with each worker, by worker; a worker gets its own one. All ranks make the splits. */
async function connectPairs(comm: Communicator, server: number): Promise<Map<number, Connection>> {
  const connections = new Map<number, Connection>();
  for (let worker = 0; worker < comm.size; worker++) {
    if (worker === server) continue;
    const isMember = comm.rank === server || comm.rank === worker;
    const pair = await comm.split({
      color: isMember ? 0 : undefined,
      key: comm.rank === server ? 0 : 1,
      stream: "own",
    });
    if (pair !== undefined) connections.set(worker, new Connection(pair));
  }
  return connections;
}

/** Refuses ranks in several processes, where the server's stream would wait for the first worker. */
function assertOneProcess({ rank, size, name, localRanks }: Communicator): void {
  const ranks = Array.from({ length: size }, (_, each) => each).filter(
    (each) => !localRanks.includes(each),
  );
  if (ranks.length === 0) return;
  throw new UnsupportedError(
    {
      headline: `ParameterServer.create: found ${localRanks.length} of ${size} ranks in this process, needs all`,
      hint: "drive all GPUs from one process: createWorld({ backend: nccl(), size }). With a process for each rank use DataParallel",
    },
    { rank, size, comm: name, ranks },
  );
}
