/** The backends that `--backend` can name. The library itself has no such table: there a backend is a value. */
import type { AlgorithmChoice } from "../algorithms/index.ts";
import { type Backend, BackendUnavailableError } from "../api/index.ts";
import { sim, Trace } from "../backends/sim/index.ts";
import type { BackendSettings, BackendTable } from "./context.ts";

/** Every name, with how to get the backend. */
export const backends: BackendTable = {
  sim: ({ seed = 0, algorithms = {}, trace }) =>
    sim({
      seed,
      algorithms: algorithms as AlgorithmChoice,
      ...(trace instanceof Trace && { trace }),
    }),
  nccl: () => {
    throw new BackendUnavailableError({
      headline: "backend nccl: this version has no NCCL backend",
      hint: "use --backend sim; twinccl never falls back to another backend than the one named",
    });
  },
};

/**
 * The backend of that name.
 *
 * @throws BackendUnavailableError for a name that this version lacks; it never falls back to another.
 */
export function namedBackend(
  table: BackendTable,
  name: string,
  settings: BackendSettings,
): Backend {
  const make = Object.hasOwn(table, name) ? table[name] : undefined;
  if (make !== undefined) return make(settings);
  throw new BackendUnavailableError({
    headline: `backend ${name}: there is no such backend`,
    hint: `backends are ${Object.keys(table).join(", ")}`,
  });
}
