/** Opens a world with all ranks in this process. */
import type { Backend } from "../backend.ts";
import { assertOptions, invalid, type OptionKinds, textOf } from "../option-kinds.ts";
import { openWorld } from "./local-world.ts";
import type { World, WorldOptions } from "./world.ts";

const kinds: OptionKinds<WorldOptions> = {
  ...{ backend: true, size: true, name: "string", onStall: "function", stallMs: true },
  ...{ stall: true, callSites: "boolean" },
};

/**
 * Opens a world with all ranks in this process.
 *
 * @throws InvalidArgumentError for a missing backend, a size that is no number of ranks, or another option out of range.
 * @throws BackendUnavailableError when the named backend cannot be used here; it never falls back to another.
 * @example
 * const world = await createWorld({ backend: sim(), size: 8 });
 */
export async function createWorld(options: WorldOptions): Promise<World> {
  assertOptions("createWorld", options, kinds);
  const { backend, size, name = "world" } = options;
  assertBackend("createWorld", backend);
  if (typeof size !== "number" || !Number.isSafeInteger(size) || size < 1 || size > mostRanks) {
    throw invalid("createWorld", "size", textOf(size), `an integer in 1..${mostRanks}`);
  }
  const { onStall, stallMs = 10_000, stall = "report", callSites = false } = options;
  if (typeof stallMs !== "number" || !(stallMs > 0)) {
    throw invalid("createWorld", "stallMs", textOf(stallMs), "a number above 0");
  }
  if (stall !== "report" && stall !== "fail") {
    throw invalid("createWorld", "stall", textOf(stall), '"report" or "fail"');
  }
  return openWorld({ backend, name, onStall, stallMs, stall, callSites, closeMs }, size);
}

/** Ranks of one process, at most: each is several objects, and a slip of the pen must not take all memory. */
const mostRanks = 131_072;

/** Longest wait of `close` for work that real devices have begun. */
const closeMs = 60_000;

/** Refuses a value that is no backend; `subject` names its place. */
export function assertBackend(
  subject: string,
  backend: unknown,
  field = "backend",
): asserts backend is Backend {
  if (typeof backend === "object" && backend !== null && "open" in backend) return;
  const isFunction = typeof backend === "function";
  throw invalid(
    subject,
    field,
    textOf(backend),
    "a backend value",
    isFunction ? `call it: ${backend.name}()` : 'import { sim } from "twinccl/sim" and pass sim()',
  );
}
