/** Jobs on the TCP backend with all ranks in this process: each has a membership, a session and sockets of its own. */
import { type CommError, type ConnectedCommunicator, connect } from "twinccl";
import { gatherRun, type Program, type ProgramRun, runProgramAs } from "twinccl/testing";
import {
  linkOf,
  type Plan,
  type Planner,
  type PlanOptions,
  plannersOf,
} from "../../src/algorithms/index.ts";
import { openJoined } from "../../src/backends/tcp/open.ts";
import type { TcpJobSession } from "../../src/backends/tcp/session.ts";
import type { CompareCalls } from "../../src/job/before-calls.ts";
import type { Membership } from "../../src/job/rendezvous.ts";
import { StoreServer } from "../../src/job/server.ts";
import { tcpRendezvous } from "../../src/job/tcp-rendezvous.ts";
import { within } from "./planted.ts";

/** Settings of a job. */
export interface TcpJobOptions extends PlanOptions {
  readonly tls?: boolean;
  readonly compareCalls?: CompareCalls;
  readonly timeoutMs?: number;
  readonly lossGraceMs?: number;
  /** The address of the store of a job with each rank on another machine; all are on one when left out. */
  readonly address?: string;
  readonly host?: string;
  /** Changes the plans of a rank. */
  readonly replan?: (rank: number, plan: Plan) => Plan;
}

/** The longest time of one use of a job. */
const patienceMs = 60_000;

const secret = "a secret of jobs in one process";

/** The ranks of one job. */
export class TcpJob {
  readonly comms: readonly ConnectedCommunicator[];
  readonly sessions: readonly TcpJobSession[];
  readonly members: readonly Membership[];
  readonly #store: StoreServer;

  private constructor(store: StoreServer, ranks: readonly OpenRank[]) {
    this.#store = store;
    this.comms = ranks.map(({ comm }) => comm);
    this.sessions = ranks.map(({ session }) => session);
    this.members = ranks.map(({ member }) => member);
  }

  /** Opens a store, and joins all ranks. */
  static async open(size: number, options: TcpJobOptions = {}): Promise<TcpJob> {
    const jobId = "tcp-job";
    const store = await StoreServer.listen({ jobId, size, hosted: false, secret });
    const rendezvous = tcpRendezvous({ port: store.port, secret, host: "other" });
    const ranks = Array.from({ length: size }, async (_, rank) =>
      openRank(await rendezvous.join({ jobId, rank, size, deadlineMs: 20_000 }), options),
    );
    return new TcpJob(store, await Promise.all(ranks));
  }

  /** Has every rank do something, in bounded time. */
  each<T>(work: (comm: ConnectedCommunicator, rank: number) => PromiseLike<T>): Promise<T[]> {
    return within(patienceMs, Promise.all(this.comms.map(work)));
  }

  /** The outcome of something on every rank, in bounded time: a value or an error. */
  outcomes<T>(
    work: (comm: ConnectedCommunicator, rank: number) => PromiseLike<T>,
  ): Promise<(T | CommError)[]> {
    return this.each((comm, rank) => Promise.resolve(work(comm, rank)).catch((error) => error));
  }

  /** Runs a program. */
  async run(program: Program, label = "tcp"): Promise<ProgramRun> {
    const byRank = await this.each((comm) => runProgramAs(comm, program));
    return gatherRun(program, byRank, label);
  }

  async close(): Promise<void> {
    try {
      await this.each((comm) => comm.close());
    } finally {
      await Promise.all(this.members.map((member) => member.leave()));
      await this.#store.close();
    }
  }
}

interface OpenRank {
  readonly comm: ConnectedCommunicator;
  readonly session: TcpJobSession;
  readonly member: Membership;
}

async function openRank(member: Membership, options: TcpJobOptions): Promise<OpenRank> {
  const {
    tls = false,
    compareCalls = "once",
    timeoutMs,
    lossGraceMs = 2_000,
    replan,
    address,
    host,
    ...plans
  } = options;
  const { size, rank } = member;
  const usual = plannersOf(plans)(size);
  const planner: Planner = replan
    ? {
        ...{
          messages: undefined,
          message: () => undefined,
          time: () => undefined,
          reducesEachRoot: () => false,
        },
        of: (question) => replan(rank, usual.of(question)),
      }
    : usual;
  const link = linkOf({ latencyNs: 1000, gigabytesPerSecond: 1 });
  const job = { localSize: address === undefined ? size : 1, size, address };
  let session: TcpJobSession | undefined;
  const comm = await connect({
    backend: {
      name: "tcp",
      probe: () => ({ ok: true, reason: "needs nothing" }),
      open: () => Promise.reject(new Error("this backend only joins")),
      join: async (request) => {
        const setup = { planner, link, timeoutMs, lossGraceMs };
        const settings = { host, tls, compareCalls, job };
        session = await openJoined(setup, settings, member, request);
        return session;
      },
    },
    timeoutMs: 20_000,
  });
  return { comm, session: session as unknown as TcpJobSession, member };
}
