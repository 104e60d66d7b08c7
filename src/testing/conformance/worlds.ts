/** The conformance suite on worlds of one process, and the further duties of such a world. */
import type { Backend, Capabilities } from "../../api/backend-entry.ts";
import { createWorld, type World } from "../../api/index.ts";
import {
  assertOptions,
  textOf as foundText,
  invalid,
  type OptionKinds,
} from "../../api/option-kinds.ts";
import { expectEqual, expectTrue, failureOf, within } from "./expectations.ts";
import { conformanceParts, healthOf, healthyAmong } from "./parts.ts";
import {
  type ConformanceCase,
  type ConformanceClaims,
  type ConformanceRanks,
  conformanceOfRanks,
} from "./ranks.ts";

/** The backend under test, and claims about it. */
export interface ConformanceOptions extends Partial<ConformanceClaims> {
  /** Makes the backend; called for every world. */
  readonly backend: () => Backend;
  /** The capabilities it must declare. */
  readonly capabilities: Capabilities;
  /** Has an open world used, so that it can be kept; one is opened and closed for every use when left out. */
  readonly use?: UseWorld | undefined;
}

/** Has a world of a size used alone. */
export type UseWorld = <T>(size: number, use: (world: World) => Promise<T>) => Promise<T>;

const kinds: OptionKinds<ConformanceOptions> = {
  backend: "function",
  capabilities: true,
  use: "function",
  sizes: true,
  sharesDevice: "boolean",
  foldsAsExplained: "boolean",
};

/** A deadlock is detected at once, so this is never reached. */
const patienceMs = 30_000;

/**
 * The duties of a backend with all ranks in one process, as cases for any test runner: results of every collective, dtype and
 * operator, order, errors, communicators, plans. Their results are judged by oracles that share no code with the library.
 *
 * @throws InvalidArgumentError for options that make no sense.
 * @example
 * const capabilities = { hostArrays: false, virtualTime: false, deterministic: true, symmetricMemory: false };
 * for (const each of conformance({ backend: () => mine(), capabilities })) test(each.name, each.run);
 */
export function conformance(options: ConformanceOptions): readonly ConformanceCase[] {
  assertOptions("conformance", options, kinds);
  const { backend, sizes = [1, 2, 3, 8], ...claims } = options;
  const isSize = (size: unknown): boolean => Number.isSafeInteger(size) && (size as number) > 0;
  if (!Array.isArray(sizes) || sizes.length === 0 || !sizes.every(isSize)) {
    throw invalid("conformance", "sizes", foundText(sizes), "an array of numbers of ranks");
  }
  const ascending = [...sizes].sort((a, b) => a - b);
  const use = options.use ?? openedBy(backend);
  const ofRanks = conformanceOfRanks({
    ...claims,
    sizes: ascending,
    backend: backend().name,
    use: (size, useRanks) => use(size, (world) => useRanks(ranksOf(world))),
  });
  return [...ofRanks, ...casesOfWorlds(backend, ascending, use)];
}

function openedBy(backend: () => Backend): UseWorld {
  return async (size, use) => {
    const world = await createWorld({ backend: backend(), size });
    try {
      return await use(world);
    } finally {
      await world.close();
    }
  };
}

/** The ranks of a world. */
function ranksOf(world: World): ConformanceRanks {
  return {
    size: world.size,
    each: async (part, ...args) => {
      const play = conformanceParts[part] as (...given: unknown[]) => unknown;
      // Copies, as between processes.
      const running = world.run((comm) => play(comm, ...structuredClone(args as unknown[])));
      return structuredClone(await within(patienceMs, running)) as never;
    },
  };
}

/** Duties of the world, not of its communicators. */
function casesOfWorlds(
  backend: () => Backend,
  sizes: readonly number[],
  use: UseWorld,
): ConformanceCase[] {
  const [least, most] = [sizes[0] as number, sizes.at(-1) as number];
  const cases: Readonly<Record<string, () => Promise<void>>> = {
    "is available, and names the requested backend": async () => {
      const { ok, reason } = await backend().probe({ size: least, name: "world" });
      expectTrue(`the probe is ok: ${reason}`, ok && typeof reason === "string");
      await use(least, async (world) => {
        expectEqual("backend of the world", world.backend, backend().name);
      });
    },
    "fails the other ranks when one throws or leaves, and continues": async () => {
      if (most > 1) await use(most, failsWithOneRank);
    },
    "closes permanently": async () => {
      const world = await createWorld({ backend: backend(), size: least });
      await world.close();
      await world.close();
      const error = await failureOf(
        "a run in a closed world",
        world.run(() => 0),
      );
      expectEqual("code", (error as { code?: unknown }).code, "ERR_COMM_CLOSED");
    },
    "explains a call as its ranks do": () =>
      use(most, async (world) => {
        const call = { collective: "allReduce", dtype: "float32", op: "sum", count: 100 } as const;
        const plan = world.explain(call);
        expectEqual("collective and ranks", [plan.collective, plan.ranks], ["allReduce", most]);
        const texts = await world.run((comm) => String(comm.explain(call)));
        expectEqual("plans of the ranks", texts, new Array(most).fill(String(plan)));
      }),
  };
  return Object.entries(cases).map(([name, run]) => ({ name, run }));
}

async function failsWithOneRank(world: World): Promise<void> {
  const causeOf = async (work: Promise<unknown>): Promise<Record<string, unknown>> => {
    const error = (await failureOf("a world with a failed rank", within(20_000, work))) as Error;
    return Object(error.cause);
  };
  const thrown = world.run((comm) => {
    if (comm.rank === 0) throw new Error("mine");
    return comm.barrier();
  });
  const mine = await causeOf(thrown);
  expectEqual("cause of a rank that throws", mine["message"], "mine");
  const left = world.run((comm) => (comm.rank === 0 ? undefined : comm.barrier()));
  const { code, ranks } = await causeOf(left);
  const needed = { code: "ERR_COMM_DEADLOCK", ranks: [0] };
  expectEqual("cause of a rank that leaves", { code, ranks }, needed);
  const healthy = await within(patienceMs, world.run(healthOf));
  const all = new Array(world.size).fill(healthyAmong(world.size));
  expectEqual("a healthy program afterwards", healthy, all);
}
