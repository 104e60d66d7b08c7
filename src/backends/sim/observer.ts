/** Observes the calls of a simulated world: injects faults, checks lent buffers, and traces failures. */
import type {
  CallObserver,
  CommInfo,
  FailedCall,
  RankCall,
  WriteFault,
} from "../../api/backend-entry.ts";
import type { StreamTimes } from "./call-times.ts";
import type { FaultPlan } from "./faults.ts";
import type { StrictLending } from "./strict.ts";
import type { WorldTrace } from "./trace/trace.ts";

/** The observer of a world with faults, strict lending or a trace. */
export class SimObserver implements CallObserver {
  readonly lending: StrictLending | undefined;
  readonly #faults: FaultPlan;
  readonly #trace: WorldTrace | undefined;
  readonly #streams: StreamTimes;

  constructor(
    faults: FaultPlan,
    lending: StrictLending | undefined,
    trace: WorldTrace | undefined,
    streams: StreamTimes,
  ) {
    this.#faults = faults;
    this.lending = lending;
    this.#trace = trace;
    this.#streams = streams;
  }

  posting(worldRank: number, call: RankCall): void {
    this.#faults.strike(worldRank, call);
  }

  posted(comm: CommInfo, call: RankCall): void {
    this.lending?.acquire(comm, call);
  }

  findWrite(calls: readonly RankCall[]): WriteFault | undefined {
    return this.lending?.findWrite(calls);
  }

  settled(call: RankCall): void {
    this.lending?.release(call);
  }

  failed(comm: CommInfo, failed: FailedCall): void {
    const { rank, postedAtPs, finishedAtPs } = failed.call;
    const isServed = finishedAtPs > postedAtPs;
    this.#trace?.failed(comm, failed, isServed ? postedAtPs : this.#streams.freePs(comm, rank));
  }
}
