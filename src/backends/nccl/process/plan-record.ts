/** The plans that NCCL took for the worlds of one backend, from its log. */
import {
  communicatorOfLines,
  planOfLine,
  type TakenCommunicator,
  type TakenPlan,
} from "./plan-log.ts";
import type { PlanLogFile } from "./plan-log-file.ts";

/** A plan, and the communicator of its call. */
export interface RecordedPlan extends TakenPlan {
  /** Name of the communicator. */
  readonly comm: string;
}

/** Plans kept for a caller that does not take them; the oldest go first. */
const mostKept = 2 ** 20;

/** The logged plans so far, in the order of the calls. Empty without `readPlan`, and where rank 0 is elsewhere. */
export class PlanRecord {
  /** Communicators by name, the latest of each. */
  readonly communicators = new Map<string, TakenCommunicator>();
  #plans: RecordedPlan[] = [];

  /** The plans since the last `take`; afterwards there are none. */
  take(): readonly RecordedPlan[] {
    const taken = this.#plans;
    this.#plans = [];
    return taken;
  }

  /**
   * Reads what NCCL logged since the last look, which was about this communicator.
   *
   * @internal
   */
  read(log: PlanLogFile, comm: string): void {
    const lines = log.newLines();
    if (lines.length === 0) return;
    const communicator = communicatorOfLines(lines);
    if (communicator !== undefined) this.communicators.set(comm, communicator);
    for (const line of lines) {
      const plan = planOfLine(line);
      if (plan !== undefined) this.#plans.push({ ...plan, comm });
    }
    if (this.#plans.length > mostKept) this.#plans = this.#plans.slice(-mostKept);
  }
}
