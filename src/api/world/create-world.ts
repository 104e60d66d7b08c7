/** Opens a world with all ranks in this process, on a backend of the program's choice or on the first that is available. */
import type { Attempt, Backend, JoinRequest, OpenRequest, Session } from "../backend.ts";
import { firstLine } from "../error-text.ts";
import { BackendUnavailableError, UnsupportedError } from "../errors.ts";
import {
  aboveZero,
  assertOptions,
  assertRule,
  integer,
  invalid,
  type OptionKinds,
  oneOf,
  textOf,
} from "../option-kinds.ts";
import { runtimeProcess } from "../runtime-process.ts";
import { launcherEnvironment } from "./launchers.ts";
import { LocalWorld, noteSelection } from "./local-world.ts";
import type { World, WorldOptions } from "./world.ts";

const kinds: OptionKinds<WorldOptions> = {
  ...{ backend: true, size: true, name: "string", onStall: "function", stallMs: aboveZero() },
  ...{ stall: oneOf(["report", "fail"]), callSites: "boolean" },
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
  assertRule("createWorld", "size", size, integer(1, maxRanks));
  const { onStall, stallMs = 10_000, stall = "report", callSites = false } = options;
  const session = await backend.open({ size, name });
  return new LocalWorld(session, { backend, name, onStall, stallMs, stall, callSites, closeMs });
}

/** Ranks of one process, at most: each is several objects, and a mistyped size must not take all memory. */
const maxRanks = 131_072;

/** Longest wait of `close` for work that real devices have begun. */
const closeMs = 60_000;

/** Refuses a value that is no backend; `subject` names its place. */
export function assertBackend(
  subject: string,
  backend: unknown,
  field = "backend",
): asserts backend is Backend {
  if (typeof backend === "object" && backend !== null && "open" in backend) {
    const { name, probe, open, join = open } = backend as Partial<Backend>;
    if (typeof name !== "string") throw invalid(subject, `${field}.name`, textOf(name), "a string");
    for (const [method, found] of Object.entries({ probe, open, join })) {
      if (typeof found === "function") continue;
      throw invalid(subject, `${field}.${method}`, textOf(found), "a function");
    }
    return;
  }
  const isFunction = typeof backend === "function";
  // A simulation has no part in a job of several processes.
  const name = subject === "connect" ? "tcp" : "sim";
  throw invalid(
    subject,
    field,
    textOf(backend),
    "a backend value",
    isFunction
      ? `call it: ${backend.name}()`
      : `import { ${name} } from "twinccl/${name}" and pass ${name}()`,
  );
}

// The first available backend.

/**
 * A backend that opens the first of `backends` with a successful probe; `world.selection` lists the tried ones.
 * `connect` takes the first that all ranks of the job can use; a simulation takes its turn where the job has one rank.
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
      const reasons = attempts.map(({ backend, reason }) => `${backend}: ${reason}`);
      return { ok: found !== undefined, reason: reasons.join("; ") };
    },
    async open(request): Promise<Session> {
      const attempts = await tryEach(backends, request);
      const backend = backends[attempts.findIndex((attempt) => attempt.ok)];
      if (backend === undefined) throw noneAvailableError(attempts);
      return noteSelection(await backend.open(request), attempts);
    },
    ...(backends.some(({ join }) => join !== undefined) && {
      join: (request) => joinFirst(backends, request),
    }),
  };
}

/**
 * Joins the job on the first backend that is available on all of its ranks: one that is missing on some fails on all, so that all
 * go on to the next. A backend without processes takes part where this process is the whole job.
 */
async function joinFirst(backends: readonly Backend[], request: JoinRequest): Promise<Session> {
  const attempts: Attempt[] = [];
  const { name, size } = request;
  for (const backend of backends) {
    const alone = { name, size: 1 };
    const probe = backend.join === undefined ? await backend.probe(alone) : undefined;
    if (probe?.ok === false) attempts.push({ backend: backend.name, ...probe });
    if (probe?.ok === false) continue;
    if (backend.join === undefined) assertSingleProcess(backend.name, size, attempts);
    try {
      const session = await (backend.join?.(request) ?? backend.open(alone));
      attempts.push({ backend: backend.name, ok: true, reason: probe?.reason ?? "joined" });
      return noteSelection(session, attempts);
    } catch (error) {
      if (!(error instanceof BackendUnavailableError)) throw error;
      attempts.push({ backend: backend.name, ok: false, reason: firstLine(error) });
    }
  }
  throw noneAvailableError(attempts);
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

function noneAvailableError(attempts: readonly Attempt[]): BackendUnavailableError {
  return new BackendUnavailableError({
    headline: "no backend can be used here",
    table: attempts.map(({ backend, reason }) => [backend, reason]),
    hint: "sim() needs nothing: pass it last",
  });
}

// Jobs of a single process.

/**
 * Refuses to be one of several processes: each would be a job of one rank, without the others.
 *
 * @throws UnsupportedError that names the number of ranks, and why backends before this one were not taken.
 *   InvalidArgumentError for wrong variables of a launcher.
 */
export function assertSingleProcess(
  backend: string,
  size: number | undefined,
  attempts: readonly Attempt[] = [],
): void {
  const launched = launcherEnvironment(runtimeProcess()?.env ?? {});
  const processes = launched?.size ?? 1;
  const ranks = size ?? processes;
  if (ranks === 1 && processes === 1) return;
  const several = ranks === 1 ? processes : ranks;
  const origin =
    launched === undefined ? "" : `${launched.family} started ${processes} processes: `;
  throw new UnsupportedError(
    {
      headline: `connect: ${backend} with ${several} ranks: all its ranks live in one process`,
      table: attempts.map((attempt) => [attempt.backend, attempt.reason]),
      hint: `${origin}use createWorld, or twinccl run FILE -n RANKS`,
    },
    { size: several, field: "size" },
  );
}
