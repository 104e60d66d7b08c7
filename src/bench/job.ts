/** The ranks of a benchmark: all in this process, or this process's rank of a launched job. */
import {
  type Backend,
  type Communicator,
  connect,
  createWorld,
  type DeviceBuffer,
  type Explanation,
  type Question,
} from "../api/index.ts";
import type { RankFigures } from "./document.ts";
import type { BenchOptions } from "./options.ts";

/** Ranks that run a trial together. */
export interface BenchJob {
  readonly backend: string;
  /** True when all ranks live in this process. */
  readonly isWhole: boolean;
  /** Runs a trial on every rank; the figures of all ranks, by rank, here and in every other process. */
  run(trial: (comm: Communicator) => Promise<RankFigures>): Promise<readonly RankFigures[]>;
  /** Queries one local rank's communicator. */
  ask<T>(question: (comm: Communicator) => T): Promise<T>;
  explain(question: Question): Explanation;
  close(): Promise<void>;
}

/** The ranks of a benchmark. */
export function openRanks({
  backend,
  ranks,
  connected = false,
}: Pick<BenchOptions, "backend" | "ranks" | "connected">): Promise<BenchJob> {
  return connected ? joinJob(backend, ranks) : openJob(backend, ranks);
}

/** All ranks in this process. */
async function openJob(backend: Backend, size: number): Promise<BenchJob> {
  const world = await createWorld({ backend, size, name: "bench" });
  return {
    backend: world.backend,
    isWhole: true,
    run: (trial) => world.run(trial),
    ask: async (question) => (await world.run(question))[0] as Awaited<ReturnType<typeof question>>,
    explain: (question) => world.explain(question),
    close: () => world.close(),
  };
}

/** One rank of a job of processes that a launcher has started. */
async function joinJob(backend: Backend, size: number): Promise<BenchJob> {
  const comm = await connect({ backend, size, name: "bench" });
  const figures = new FigureExchange(comm);
  return {
    backend: comm.backend,
    isWhole: false,
    run: async (trial) => figures.exchange(await trial(comm)),
    ask: async (question) => question(comm),
    explain: (question) => comm.explain(question),
    close: () => comm.close(),
  };
}

/** Figures of one rank, exchanged between processes. */
const width = 5;

/** Exchanges figures through the communicator itself, outside of the timed part. */
class FigureExchange {
  readonly #comm: Communicator;
  readonly #send: DeviceBuffer<"float64">;
  readonly #recv: DeviceBuffer<"float64">;

  constructor(comm: Communicator) {
    this.#comm = comm;
    this.#send = comm.alloc("float64", width);
    this.#recv = comm.alloc("float64", width * comm.size);
  }

  async exchange(own: RankFigures): Promise<RankFigures[]> {
    const { began, ended, ...rest } = own;
    // Processes have separate clocks, so that only durations can be compared.
    const sent = [ended - began, rest.median, rest.p99, rest.wrong, rest.checked];
    this.#send.copyFrom(Float64Array.from(sent));
    await this.#comm.allGather({ send: this.#send, recv: this.#recv });
    const all = await this.#recv.toHost();
    return Array.from({ length: this.#comm.size }, (_, rank): RankFigures => {
      const figures = all.subarray(width * rank, width * (rank + 1));
      const [elapsed = 0, median = 0, p99 = 0, wrong = 0, checked = 0] = figures;
      return { began: 0, ended: elapsed, median, p99, wrong, checked };
    });
  }
}
