/** The simulated backend: all ranks in one process, deterministic, with a virtual clock. Runs in Node and browsers. */
import { linkOf, plannersOf } from "../../algorithms/index.ts";
import { type Backend, BackendUnavailableError } from "../../api/index.ts";
import type { Executor } from "./executor.ts";
import { cpu } from "./executors/cpu.ts";
import { sharedWasm } from "./executors/wasm/wasm.ts";
import { assertFaultRanks, FaultPlan } from "./faults.ts";
import { assertSimOptions, type SimOptions } from "./options.ts";
import { SimSession } from "./session.ts";
import { WorldTrace } from "./trace/trace.ts";

export { HostMemory, hostDevices } from "../../algorithms/host-memory.ts";
export type { LinkOptions, NcclPin } from "../../algorithms/index.ts";
export type { BoundBuffer, BoundCall, Executor, SimMemory } from "./executor.ts";
export { cpu } from "./executors/cpu.ts";
export { type WasmOptions, wasm } from "./executors/wasm/wasm.ts";
export { type Fault, failAt } from "./faults.ts";
export type { SimOptions } from "./options.ts";
export type { ScheduleName } from "./scheduler.ts";
export type { TracedCallFacts, TracedSpan } from "./trace/events.ts";
export type { ChromeEvent } from "./trace/timeline.ts";
export { Trace, type TracedMessage, type TraceOptions, type TransferTimes } from "./trace/trace.ts";

/**
 * The simulated backend, as a value for `createWorld`.
 *
 * Every call is matched, checked and planned as with NCCL. Results are exact to the bit and equal in every run, with every
 * seed. Needs nothing but JavaScript.
 *
 * @throws InvalidArgumentError for an invalid option.
 * @example
 * const world = await createWorld({ backend: sim({ seed: 7 }), size: 8 });
 */
export function sim(options: SimOptions = {}): Backend {
  assertSimOptions(options);
  const {
    seed = 0,
    schedule = "fair",
    phantom = false,
    trace,
    faults = [],
    strict = false,
  } = options;
  const link = options.link === undefined ? undefined : linkOf(options.link);
  const plannerOf = plannersOf(options);
  return {
    name: "sim",
    probe: () => options.executor?.probe?.() ?? { ok: true, reason: "needs nothing" },
    open: async ({ size, rebuilt }) => {
      if (rebuilt === undefined) assertFaultRanks(faults, size);
      const planner = plannerOf(size);
      const before = rebuilt?.session;
      const last = before instanceof SimSession ? before : undefined;
      const ranks = rebuilt?.ranks ?? Array.from({ length: size }, (_, rank) => rank);
      const initialRanks = ranks.map((rank) => last?.initialRanks[rank] ?? rank);
      const plan = last?.faults ?? new FaultPlan(faults);
      const traced = trace && new WorldTrace(trace, initialRanks, last?.trace);
      const executor = await openedExecutor(options, size);
      const settings = { seed, schedule, link, executor, planner, strict, phantom };
      return new SimSession(settings, initialRanks, plan, traced);
    },
  };
}

/** The executor of the options, opened; by default the fast one where the runtime supports it. */
async function openedExecutor(
  { executor, phantom = false }: SimOptions,
  size: number,
): Promise<Executor> {
  const fast = executor === undefined && !phantom ? sharedWasm() : undefined;
  try {
    await fast?.open?.(size);
    if (fast !== undefined) return fast;
  } catch (error) {
    if (!(error instanceof BackendUnavailableError)) throw error;
  }
  const other = executor ?? cpu();
  await other.open?.(size);
  return other;
}
