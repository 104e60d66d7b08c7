/** The simulated backend: all ranks in one process, deterministic, with a virtual clock. Runs in Node and browsers. */
import type { AlgorithmChoice, LinkOptions, NcclPin, topologies } from "../../algorithms/index.ts";
import { linkOf, plannersOf } from "../../algorithms/index.ts";
import { type Backend, InvalidArgumentError } from "../../api/index.ts";
import { assertOptionNames, type OptionNames } from "../../api/option-names.ts";
import type { Executor } from "./executor.ts";
import { cpu } from "./executors/cpu.ts";
import { commonWasm } from "./executors/wasm/wasm.ts";
import { type Fault, FaultPlan } from "./faults.ts";
import { assertPhantom } from "./phantom.ts";
import { SimSession } from "./session.ts";
import type { Trace } from "./trace.ts";

export type { LinkOptions, NcclPin } from "../../algorithms/index.ts";
export type { ChromeEvent } from "./chrome-event.ts";
export type { BoundBuffer, BoundCall, Executor, SimMemory } from "./executor.ts";
export { cpu } from "./executors/cpu.ts";
export { type WasmOptions, wasm } from "./executors/wasm/wasm.ts";
export { type Fault, failAt } from "./faults.ts";
export { HostMemory } from "./memory.ts";
export { Trace, type TracedMessage } from "./trace.ts";
export type { TransferTimes } from "./transfers.ts";

/** Options of `sim`. */
export interface SimOptions {
  /**
   * Fixes the order in which ranks resume; 0 when left out. Any safe integer, and each one another order. Results do
   * not depend on it.
   */
  readonly seed?: number;
  /** Which algorithm of the catalogue does a collective; what `like` says when left out. */
  readonly algorithms?: AlgorithmChoice;
  /**
   * Which library's plans are followed, bit for bit: `nccl-2.28`. Left out, the same plans are followed in worlds of up
   * to 8 ranks; in larger ones the catalogue's first algorithms run, and no claim is made about NCCL. Named, a world
   * that the machine has too few devices for is refused. Collectives chosen in `algorithms` keep that choice.
   */
  readonly like?: "nccl-2.28";
  /**
   * The machine whose plans are followed; eight H200 behind NVSwitch when left out. `xml` is the text of a graph file that
   * NCCL wrote on a node of Hopper GPUs (NCCL_GRAPH_DUMP_FILE); it serves exactly as many ranks as it has GPUs.
   */
  readonly topology?: keyof typeof topologies | { readonly xml: string };
  /** How NCCL is set up there, as `nccl({ plan })` sets it up: algorithm, protocol, channels, rings, buffer sizes. */
  readonly nccl?: NcclPin;
  /** How ranks are connected, for virtual time. */
  readonly link?: LinkOptions;
  /**
   * Who moves the data; where the runtime has WebAssembly with SIMD, left out, one `wasm()` that all such worlds share, and
   * `cpu()` elsewhere. Results do not depend on it.
   */
  readonly executor?: Executor;
  /** Collects every event. */
  readonly trace?: Trace;
  /** Calls that fail when they are made: `[failAt(2, 5)]`. Each strikes once, also when the world is rebuilt. */
  readonly faults?: readonly Fault[];
  /** Proves by checksum that nobody writes a buffer while it is lent to a call. Slow; for tests. */
  readonly strict?: boolean;
  /**
   * Phantom data: buffers have sizes and no contents, so that a program with gigabytes on a thousand ranks runs in
   * virtual time on a machine that could not hold them. Calls are checked, matched, timed and traced as ever, and take
   * the same virtual time; nothing is moved. `fill` is accepted and drops its value; `copyFrom`, `copyTo`, `toHost` and
   * TypedArrays in calls are refused, and `comm.capabilities.phantom` tells. Goes with neither `executor` nor `strict`.
   */
  readonly phantom?: boolean;
}

const names: OptionNames<SimOptions> = {
  ...{ seed: true, algorithms: true, like: true, topology: true, nccl: true, link: true },
  ...{ executor: true, trace: true, faults: true, strict: true, phantom: true },
};

/**
 * The simulated backend, as a value for `createWorld`.
 *
 * Every call is matched, checked and planned like NCCL's would be; results are exact to the bit and the same in every
 * run, with every seed. Needs nothing but JavaScript.
 *
 * @throws InvalidArgumentError for an option that makes no sense.
 * @example
 * const world = await createWorld({ backend: sim({ seed: 7 }), size: 8 });
 */
export function sim(options: SimOptions = {}): Backend {
  assertOptionNames("sim", options, names);
  const {
    seed = 0,
    phantom = false,
    executor = (phantom ? undefined : commonWasm()) ?? cpu(),
    trace,
    faults = [],
    strict = false,
  } = options;
  if (phantom) assertPhantom(options);
  if (!Number.isSafeInteger(seed)) {
    throw new InvalidArgumentError(
      { headline: `sim: seed: found ${String(seed)}, needs an integer` },
      { field: "seed" },
    );
  }
  const link = linkOf(options.link);
  const plannerOf = plannersOf(options);
  return {
    name: "sim",
    probe: () => options.executor?.probe?.() ?? { ok: true, reason: "needs nothing" },
    open: async ({ size, rebuilt }) => {
      const planner = plannerOf(size);
      const before = rebuilt?.session;
      const plan =
        before instanceof SimSession
          ? before.faults.rebuilt(rebuilt?.ranks ?? [])
          : FaultPlan.first(size, faults);
      await executor.open?.(size);
      return new SimSession(size, { seed, link, executor, trace, planner, strict, phantom }, plan);
    },
  };
}
