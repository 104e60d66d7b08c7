/** Choosing a backend in the open: the first of a list that can be used, with a record of what was tried. */
import type { Attempt, Backend, JoinRequest, OpenRequest, Session } from "../backend.ts";
import { BackendUnavailableError } from "../errors.ts";
import { assertAlone } from "./alone.ts";
import { assertBackend } from "./create-world.ts";

/**
 * A backend that opens the first of `backends` with a successful probe; `world.selection` lists the tried ones.
 * `connect` joins the job of the first that can be joined; a simulation takes its turn where the job has one rank.
 * Only this choice falls through: a backend passed alone never does.
 *
 * @throws BackendUnavailableError, when opened, naming every backend and why it failed.
 * @example
 * const world = await createWorld({ backend: firstAvailable(nccl(), sim()), size: 8 });
 */
export function firstAvailable(...backends: readonly Backend[]): Backend {
  for (const [at, each] of backends.entries()) {
    assertBackend("firstAvailable", each, `backends[${at}]`);
  }
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
      const backend = backends[attempts.findIndex((attempt) => attempt.ok)];
      if (backend === undefined) throw noneAvailable(attempts);
      return chosen(await backend.open(request), attempts);
    },
    ...(backends.some(({ join }) => join !== undefined) && {
      join: (request) => joinFirst(backends, request),
    }),
  };
}

/** Joins the job on the first backend that is here; one without processes takes part where this process is the whole job. */
async function joinFirst(backends: readonly Backend[], request: JoinRequest): Promise<Session> {
  const attempts: Attempt[] = [];
  const { name, size } = request;
  for (const backend of backends) {
    const alone = { name, size: 1 };
    const probe = backend.join === undefined ? await backend.probe(alone) : undefined;
    if (probe?.ok === false) attempts.push({ backend: backend.name, ...probe });
    if (probe?.ok === false) continue;
    if (backend.join === undefined) assertAlone(backend.name, size, attempts);
    try {
      const session = await (backend.join?.(request) ?? backend.open(alone));
      attempts.push({ backend: backend.name, ok: true, reason: probe?.reason ?? "joined" });
      return chosen(session, attempts);
    } catch (error) {
      if (!(error instanceof BackendUnavailableError)) throw error;
      const reason = error.message.split("\n")[0] ?? "";
      attempts.push({ backend: backend.name, ok: false, reason });
    }
  }
  throw noneAvailable(attempts);
}

function chosen(session: Session, attempts: readonly Attempt[]): Session {
  return Object.defineProperty(session, "selection", { value: attempts, enumerable: true });
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
