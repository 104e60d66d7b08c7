/** Choosing a backend in the open: the first of a list that can be used, with a record of what was tried. */
import type { Attempt, Backend, OpenRequest, Session } from "../backend.ts";
import { BackendUnavailableError } from "../errors.ts";

/**
 * A backend that opens the first of `backends` whose probe succeeds; `world.selection` tells what was tried.
 * Only this choice falls through: a backend passed alone never does.
 *
 * @throws BackendUnavailableError, when opened, naming every backend and why it failed.
 * @example
 * const world = await createWorld({ backend: firstAvailable(nccl(), sim()), size: 8 });
 */
export function firstAvailable(...backends: readonly Backend[]): Backend {
  const name = `firstAvailable(${backends.map((backend) => backend.name).join(", ")})`;
  return {
    name,
    async probe(request) {
      const attempts = await tryEach(backends, request);
      const found = attempts.find((attempt) => attempt.ok);
      return { ok: found !== undefined, reason: attempts.map(attemptText).join("; ") };
    },
    async open(request): Promise<Session> {
      const attempts = await tryEach(backends, request);
      const chosen = attempts.findIndex((attempt) => attempt.ok);
      const backend = backends[chosen];
      if (backend === undefined) throw noneAvailable(attempts);
      const session = await backend.open(request);
      return Object.defineProperty(session, "selection", { value: attempts, enumerable: true });
    },
  };
}

/** Probes one after another and stops at the first success. */
async function tryEach(backends: readonly Backend[], request: OpenRequest): Promise<Attempt[]> {
  const attempts: Attempt[] = [];
  for (const backend of backends) {
    const probe = await backend.probe(request);
    attempts.push({ backend: backend.name, ...probe });
    if (probe.ok) break;
  }
  return attempts;
}

function noneAvailable(attempts: readonly Attempt[]): BackendUnavailableError {
  return new BackendUnavailableError({
    headline: "no backend can be used here",
    table: attempts.map(({ backend, reason }) => [backend, reason]),
    hint: "sim() needs nothing: pass it last",
  });
}

function attemptText({ backend, reason }: Attempt): string {
  return `${backend}: ${reason}`;
}
