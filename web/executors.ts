/** Which executors the page compares, in the order in which it shows them. The first is the reference. */
import { cpu, type Executor } from "twinccl/sim";

/** One executor and what to say about it. */
export interface PageExecutor {
  readonly name: string;
  make(): Executor;
  /** Why it cannot be used here; `undefined` where it can. */
  missing(): Promise<string | undefined>;
  /** What it runs on. */
  detail(): Promise<string | undefined>;
}

export const executors: readonly PageExecutor[] = [
  {
    name: "cpu",
    make: cpu,
    missing: async () => undefined,
    detail: async () => undefined,
  },
];
