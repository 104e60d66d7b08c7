/** The options of `bench`. */
import {
  type Backend,
  type DType,
  dtypes,
  type NamedReduceOp,
  namedReduceOps,
} from "../api/index.ts";
import { assertOptions, invalid, type OptionKinds, textOf } from "../api/option-kinds.ts";
import type { BenchResult } from "./document.ts";
import type { Issue } from "./issue.ts";
import type { SizeSweep } from "./sizes.ts";
import { assertSpread } from "./traffic.ts";

/** The measured calls. */
export interface BenchOptions {
  /** The backend, as a value. */
  readonly backend: Backend;
  /** A collective, such as `allReduce` or `all-reduce`. */
  readonly collective: string;
  readonly ranks: number;
  /** Sizes in bytes, as nccl-tests defines them for the collective. */
  readonly sizes: SizeSweep;
  /** `float32` when left out. */
  readonly dtypes?: readonly DType[] | undefined;
  /** `sum` when left out; ignored where nothing is reduced. */
  readonly ops?: readonly NamedReduceOp[] | undefined;
  /** Rank 0 when left out; ignored where there is no root. */
  readonly roots?: readonly number[] | undefined;
  /** Timed calls of each placement, in graphs rounded up to whole ones; 20 when left out. */
  readonly iterations?: number | undefined;
  /** Times that each placement is measured: a row has the middle one. 1 when left out. */
  readonly rounds?: number | undefined;
  /** Calls before the timed ones; 5 when left out. */
  readonly warmup?: number | undefined;
  /** Compares results; true when left out. */
  readonly check?: boolean | undefined;
  /** Fixes the data and the traffic of an all-to-allv; 0 when left out. */
  readonly seed?: number | undefined;
  /** The spread of an all-to-allv's traffic, from 0 (even) to 1; 0.5 when left out. */
  readonly spread?: number | undefined;
  /** `graph`: up to 20 of the timed calls are recorded, and the graph is replayed until all are made; `eager` when left out. */
  readonly mode?: Issue["mode"] | undefined;
  /** Times each call alone, until its promise settles, instead of many back to back. */
  readonly latency?: boolean | undefined;
  /** Takes buffers in symmetric memory, for which NCCL has other kernels. */
  readonly symmetric?: boolean | undefined;
  /**
   * This process is one rank of a launched job, and `ranks` is the job's size. All of its processes call `bench`, and each
   * gets the whole document. A barrier is then timed and not checked.
   */
  readonly connected?: boolean | undefined;
  /** Called when the ranks have started, before any measurement. */
  readonly onOpen?: (() => void) | undefined;
  /** Called when a row is complete. */
  readonly onResult?: ((result: BenchResult) => void) | undefined;
  /** Called before a row is measured, with one line about it. */
  readonly onProgress?: ((text: string) => void) | undefined;
}

const kinds: OptionKinds<BenchOptions> = {
  ...{ backend: true, collective: true, ranks: true, sizes: "object", mode: true },
  ...{ dtypes: "array", ops: "array", roots: "array" },
  ...{ iterations: true, rounds: true, warmup: true, seed: true, spread: true },
  ...{ check: "boolean", latency: "boolean", symmetric: "boolean", connected: "boolean" },
  ...{ onOpen: "function", onResult: "function", onProgress: "function" },
};

/** Refuses invalid options; the collective and the sizes are checked when their rows are created. */
export function assertBenchOptions(options: BenchOptions): void {
  assertOptions("bench", options, kinds);
  const { ranks, roots = [0], iterations = 20, rounds = 1, warmup = 5 } = options;
  const { spread = 0.5, mode = "eager" } = options;
  for (const field of ["dtypes", "ops", "roots"] as const) {
    if (options[field]?.length === 0) throw invalid("bench", field, "none", "at least one");
  }
  assertCount("ranks", ranks, 1);
  assertCount("iterations", iterations, 1);
  assertCount("rounds", rounds, 1);
  assertCount("warmup", warmup, 0);
  for (const root of roots) assertCount("roots", root, 0, ranks - 1);
  if (options.seed !== undefined && !Number.isSafeInteger(options.seed)) {
    throw invalid("bench", "seed", textOf(options.seed), "an integer");
  }
  assertSpread(spread);
  assertAmong("dtypes", options.dtypes ?? [], dtypes);
  assertAmong("ops", options.ops ?? [], namedReduceOps);
  assertAmong("mode", [mode], ["eager", "graph"]);
}

function assertCount(field: string, value: number, least: number, most = 2 ** 31): void {
  if (Number.isSafeInteger(value) && value >= least && value <= most) return;
  const bound = most < 2 ** 31 || value > most ? ` and at most ${most}` : "";
  throw invalid("bench", field, textOf(value), `an integer of at least ${least}${bound}`);
}

function assertAmong(field: string, found: readonly string[], names: readonly string[]): void {
  for (const name of found) {
    if (!names.includes(name))
      throw invalid("bench", field, textOf(name), `one of ${names.join(", ")}`);
  }
}
