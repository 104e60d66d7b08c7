/** Opens a world with all ranks in this process. */
import type { Backend } from "../backend.ts";
import { InvalidArgumentError } from "../errors.ts";
import { assertOptions, type OptionKinds, textOf } from "../option-kinds.ts";
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
    throw new InvalidArgumentError(
      { headline: `createWorld: size: found ${textOf(size)}, needs an integer in 1..${mostRanks}` },
      { field: "size" },
    );
  }
  const { onStall, stallMs = 10_000, stall = "report", callSites = false } = options;
  if (typeof stallMs !== "number" || !(stallMs > 0)) {
    throw new InvalidArgumentError(
      { headline: `createWorld: stallMs: found ${textOf(stallMs)}, needs a number above 0` },
      { field: "stallMs" },
    );
  }
  if (stall !== "report" && stall !== "fail") {
    throw new InvalidArgumentError(
      { headline: `createWorld: stall: found ${textOf(stall)}, needs "report" or "fail"` },
      { field: "stall" },
    );
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
  throw new InvalidArgumentError(
    {
      headline: `${subject}: ${field}: found ${textOf(backend)}, needs a backend value`,
      hint: isFunction
        ? `call it: ${backend.name}()`
        : 'import { sim } from "twinccl/sim" and pass sim()',
    },
    { field },
  );
}
