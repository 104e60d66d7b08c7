/** Connects a process as one rank of a job, and rebuilds the job without lost ranks. */
import { asJobSession, type Backend, type Session } from "../backend.ts";
import { endMemoryOf } from "../buffer.ts";
import type { Communicator } from "../communicator.ts";
import { UnsupportedError } from "../errors.ts";
import { longestTimerMs } from "../ledger/turns.ts";
import { aboveZero, assertOptions, integer, invalid, type OptionKinds } from "../option-kinds.ts";
import { assertBackend, assertSingleProcess } from "./create-world.ts";
import { LocalWorld, type Opening } from "./local-world.ts";
import type { RebuildOptions } from "./world.ts";
import { survivorsOf } from "./world-errors.ts";

/** Options of `connect`. */
export interface ConnectOptions {
  /** The backend, as a value. */
  readonly backend: Backend;
  /** Number of ranks of the whole job; left out: the number of the launcher, or 1. */
  readonly size?: number | undefined;
  /** Shown in errors and traces. */
  readonly name?: string | undefined;
  /**
   * Longest wait for the other ranks, in milliseconds; 60,000 when left out, and 25 days at most. `close` waits as long for calls that are
   * open, then aborts the communicator.
   */
  readonly timeoutMs?: number | undefined;
  /** Gives up waiting for the others. */
  readonly signal?: AbortSignal | undefined;
  /** Keeps where in the program every call is made, as `createWorld` does; off when left out. */
  readonly callSites?: boolean | undefined;
}

/** This process's communicator of a job. Closing it closes everything. */
export interface ConnectedCommunicator extends Communicator {
  /** Generation of the job: 1, and one more with every attempt of a rebuild. */
  readonly generation: number;
  /** The number of each rank in the first generation, by its rank here. */
  readonly initialRanks: readonly number[];

  /**
   * Continues with the survivors as a new communicator; ranks keep their order and get new numbers. The call ends this
   * communicator, its splits and its buffers. Every survivor calls it. With `without`, all pass the same ranks. Otherwise every
   * process that calls in time takes part (`nccl()`: within ten seconds of the previous one).
   *
   * If the next generation cannot be opened on one rank, all ranks retry twice, after pauses of 0.25 and 1 second. No retry
   * begins later than `timeoutMs` after all have joined. A failed rebuild may be repeated until this communicator is closed;
   * `generation` counts every attempt.
   *
   * @throws RendezvousError if the survivors do not all join in time. UnsupportedError on one process. BackendUnavailableError
   * if no attempt opened the next generation. Its table has the reasons, its `ranks` are the failed ranks of this generation,
   * and its cause is the last failure. InvalidArgumentError for ranks that do not exist. CommClosedError if the communicator
   * was rebuilt or closed before, or a rebuild is in progress.
   */
  rebuild(options?: RebuildOptions): Promise<ConnectedCommunicator>;
}

const kinds: OptionKinds<ConnectOptions> = {
  ...{ backend: true, name: "string", callSites: "boolean" },
  size: integer(1, undefined, "leave it out for what the launcher says"),
  timeoutMs: aboveZero("milliseconds to wait for the other ranks; leave it out for 60,000"),
  signal: { needed: "an AbortSignal", holds: (value) => value instanceof AbortSignal },
};

/**
 * Opens this process's one rank of a job. Its communicator owns the world: closing it closes everything.
 *
 * The rank, and the place of the others, come from the variables of the launcher: `twinccl launch`, torchrun, Open MPI
 * or a Slurm step. Without any it is a job of one rank.
 *
 * A process may end without closing it. Unobserved failures, which `close` would have thrown, are then
 * process warnings (`TwincclUnseenFailure`).
 *
 * @throws UnsupportedError for several ranks on a backend with all ranks in one process, also if a launcher has started several
 * processes.
 * @throws RendezvousError when the other ranks do not come in time, naming those that are missing.
 * @example
 * const comm = await connect({ backend: sim() });
 */
export async function connect(options: ConnectOptions): Promise<ConnectedCommunicator> {
  assertOptions("connect", options, kinds);
  const { backend, size, name = "world", timeoutMs = 60_000, signal, callSites = false } = options;
  assertBackend("connect", backend);
  const closeMs = Math.min(timeoutMs, longestTimerMs);
  const opening: Opening = { backend, name, stallMs: 10_000, stall: "report", callSites, closeMs };
  if (backend.join !== undefined) {
    return attach(opening, await backend.join({ name, size, timeoutMs: closeMs, signal }));
  }
  assertSingleProcess(backend.name, size);
  return attach(opening, await backend.open({ name, size: 1 }));
}

/** The communicator of a session's own rank. */
function attach(opening: Opening, session: Session): ConnectedCommunicator {
  const job = asJobSession(session);
  const world = new LocalWorld(session, opening, job?.generation, job?.initialRanks);
  const { generation, initialRanks, name } = world;
  const comm = world.detach();
  const rebuild = async (options: RebuildOptions = {}): Promise<ConnectedCommunicator> => {
    assertOptions("rebuild", options, { without: true });
    if (job === undefined) {
      throw new UnsupportedError({
        headline: `rebuild: "${name}" has no other process to go on with`,
        hint: "connect again",
      });
    }
    if (options.without !== undefined) survivorsOf(world.size, options.without);
    if (options.without?.includes(comm.rank) === true) {
      throw invalid(
        "rebuild",
        "without",
        `${comm.rank}, this rank itself`,
        "other ranks",
        "close() leaves the job to the others",
        { rank: comm.rank, size: world.size },
      );
    }
    world.abort(new Error("it was rebuilt"));
    // The rejoin frees the memory of this generation: a read of it that begins later may never end.
    endMemoryOf(session);
    const next = await job.rejoin(options.without);
    // From here on the old communicator and its buffers are refused as closed. Errors of giving them back belong
    // to the rebuild that met them, and must not keep the next generation from its owner.
    await world.close().catch(() => undefined);
    return attach(opening, next);
  };
  return Object.assign(comm, { generation, initialRanks, rebuild });
}
