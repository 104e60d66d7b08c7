/** The executors that the page compares, in the order in which it shows them. The first is the reference. */
import type { Probe } from "twinccl/backend";
import { cpu, type Executor, wasm } from "twinccl/sim";
import { webgpu } from "twinccl/webgpu";

/** One executor; kept for all calls, so that what it compiles is compiled once. */
export interface PageExecutor {
  readonly name: string;
  readonly executor: Executor;
  /** Availability in this browser: its device, or the reason for its absence. */
  probe(): Promise<Probe>;
}

export const executors: readonly PageExecutor[] = [
  entry("cpu", cpu()),
  entry("wasm", wasm()),
  entry("webgpu", webgpu({ keepDevice: true })),
];

/** The probe of an executor that needs nothing. */
const always: Probe = { ok: true, reason: "needs nothing" };

function entry(name: string, executor: Executor): PageExecutor {
  const probed = once(async () => (await executor.probe?.()) ?? always);
  return { name, executor, probe: probed };
}

/** A browser does not change while a page is open. */
function once(make: () => Promise<Probe>): () => Promise<Probe> {
  let made: Promise<Probe> | undefined;
  return () => {
    made ??= make();
    return made;
  };
}
