/** The executors of the simulation that `--executor` and `sim:executor=NAME` can name. */
import { webgpu } from "../backends/sim/executors/webgpu/index.ts";
import { cpu, type Executor, wasm } from "../backends/sim/index.ts";
import { UsageError } from "./context.ts";

const executors: Readonly<Record<string, () => Executor>> = {
  cpu,
  wasm,
  // Commands open many worlds, and kernels are compiled for a device.
  webgpu: () => webgpu({ keepDevice: true }),
};

/** The option's row in a command's table. */
export const executorOption = {
  executor: {
    value: "NAME",
    help: `sim: moves the data: ${Object.keys(executors).join(", ")} (wasm where it can)`,
  },
} as const;

/** One of each for all worlds of a command: each `wasm()` has a memory of its own. */
const made = new Map<string, Executor>();

/**
 * The executor of that name.
 *
 * @throws UsageError for a name that this version lacks.
 */
export function namedExecutor(name: string): Executor {
  const make = Object.hasOwn(executors, name) ? executors[name] : undefined;
  const executor = made.get(name) ?? make?.();
  if (executor !== undefined) {
    made.set(name, executor);
    return executor;
  }
  throw new UsageError(
    `executor: found "${name}", needs one of ${Object.keys(executors).join(", ")}`,
  );
}
