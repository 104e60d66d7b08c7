/** The conformance suite on worlds of one process, and the further duties of such a world. */
import type { Backend, Capabilities } from "../../api/backend-entry.ts";
import { createWorld, UnsupportedError, type World, WorldError } from "../../api/index.ts";
import { assertOptions, invalid, type OptionKinds } from "../../api/option-kinds.ts";
import { explainedCalls, questionOf, symmetricCalls } from "./calls.ts";
import { expectEqual, expectTrue, failureOf, within } from "./expectations.ts";
import { conformanceParts } from "./parts.ts";
import {
  assertClaims,
  type ConformanceCase,
  type ConformanceClaims,
  type ConformanceRanks,
  conformanceOfRanks,
  expectHealthy,
  judgeSupported,
} from "./ranks.ts";

/** The backend under test, and claims about it. */
export interface ConformanceOptions extends Omit<ConformanceClaims, "sizes"> {
  /** Makes the backend; called for every world. */
  readonly backend: () => Backend;
  /** Numbers of ranks that can be opened; 1, 2, 3 and 8 when left out. */
  readonly sizes?: readonly number[] | undefined;
  /** Has an open world used, so that it can be kept; one is opened and closed for every use when left out. */
  readonly use?: UseWorld | undefined;
}

type Cases = Readonly<Record<string, () => Promise<void>>>;

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
const timeoutMs = 30_000;

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
  if (backend === undefined) throw invalid("conformance", "backend", "undefined", "a function");
  assertClaims("conformance", { ...claims, sizes });
  const ascending = [...sizes].sort((a, b) => a - b);
  const use = options.use ?? worldsOf(backend);
  const ofRanks = conformanceOfRanks({
    ...claims,
    sizes: ascending,
    backend: backend().name,
    use: (size, useRanks) => use(size, (world) => useRanks(ranksOf(world))),
  });
  const ofWorlds = {
    ...worldCases(backend, ascending, use),
    ...symmetricCases(ascending, use, claims.capabilities),
    ...lifeCases(backend, ascending),
  };
  return [...ofRanks, ...Object.entries(ofWorlds).map(([name, run]) => ({ name, run }))];
}

function worldsOf(backend: () => Backend): UseWorld {
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
      return structuredClone(await within(timeoutMs, running)) as never;
    },
  };
}

/** Duties of the world, not of its communicators. */
function worldCases(backend: () => Backend, sizes: readonly number[], use: UseWorld): Cases {
  const [least, most] = [sizes[0] as number, sizes.at(-1) as number];
  return {
    "is available, and names the requested backend": async () => {
      const { ok, reason } = await backend().probe({ size: least, name: "world" });
      expectTrue(`the probe is ok: ${reason}`, ok && typeof reason === "string");
      await use(least, async (world) => {
        expectEqual("backend of the world", world.backend, backend().name);
      });
    },
    "fails the other ranks when one throws or leaves, and continues": async () => {
      if (most > 1) await use(most, checkFailingRank);
    },
    "closes permanently": async () => {
      const world = await createWorld({ backend: backend(), size: least });
      await world.close();
      await world.close();
      const error = await failureOf(
        "a run in a closed world",
        world.run(() => 0),
      );
      expectEqual("code", Object(error).code, "ERR_COMM_CLOSED");
    },
    "explains a call as its ranks do": () =>
      use(most, async (world) => {
        const call = { collective: "allReduce", dtype: "float32", op: "sum", count: 100 } as const;
        const plan = world.explain(call);
        expectEqual("collective and ranks", [plan.collective, plan.ranks], ["allReduce", most]);
        const texts = await world.run((comm) => String(comm.explain(call)));
        expectEqual("plans of the ranks", texts, new Array(most).fill(String(plan)));
      }),
    "estimates the time of every call, or none": () =>
      use(most, async (world) => {
        for (const call of explainedCalls(most)) {
          const estimate = world.estimate(questionOf(call));
          const time = await estimate.catch((error: unknown) => {
            if (error instanceof UnsupportedError) return 0;
            throw error;
          });
          const holds = Number.isFinite(time) && time >= 0;
          expectTrue(`${time} ns, for ${call.kind}, is a time of at least 0`, holds);
        }
      }),
    "lets no rank leave a barrier before the last one enters": () => use(most, checkBarrierExit),
    "gives all ranks one error when one differs in a count, and continues": async () => {
      // One rank agrees with itself.
      if (most > 1) await use(most, rejectsDifferentCounts);
    },
  };
}

/** Calls in symmetric memory, where a backend declares it. */
function symmetricCases(sizes: readonly number[], use: UseWorld, has: Capabilities): Cases {
  if (!has.symmetricMemory) return {};
  return {
    "runs calls in symmetric memory": async () => {
      for (const size of sizes) {
        await use(size, (world) => judgeSupported(ranksOf(world), "each", symmetricCalls()));
      }
    },
  };
}

/** Worlds that are opened, rebuilt and closed. */
function lifeCases(backend: () => Backend, sizes: readonly number[]): Cases {
  const open = (size: number): Promise<World> => createWorld({ backend: backend(), size });
  return {
    "refuses buffers, communicators and splits of the world before a rebuild": async () => {
      for (const size of new Set([sizes[0] as number, sizes.at(-1) as number])) {
        await checkPastGeneration(await open(size));
      }
    },
    "opens, uses and closes ten worlds in a row": async () => {
      for (let cycle = 0; cycle < 10; cycle++) {
        const world = await open(sizes[cycle % sizes.length] as number);
        await expectHealthy(ranksOf(world));
        await world.close();
      }
    },
  };
}

async function checkBarrierExit(world: World): Promise<void> {
  let entered = 0;
  const seen = await world.run(async (comm) => {
    for (let wait = 0; wait < 3 * comm.rank; wait++) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    entered += 1;
    await comm.barrier();
    return entered;
  });
  expectEqual("ranks that had entered", seen, new Array(world.size).fill(world.size));
}

async function rejectsDifferentCounts(world: World): Promise<void> {
  const { size } = world;
  const values = [...new Array<string>(size - 1).fill("64"), "63"];
  const facts = { code: "ERR_COMM_MISMATCH", field: "count", collective: "allReduce", values };
  // Nothing was written: the same buffers have the right sum next.
  const sum = [(size * (size + 1)) / 2];
  for (let round = 0; round < 3; round++) {
    const running = world.run(async (comm) => {
      const send = comm.alloc("float32", 64).fill(comm.rank + 1);
      const part = comm.rank === size - 1 ? send.subarray(0, 63) : send;
      const error = await comm.allReduce({ send: part, op: "sum" }).catch((caught) => caught);
      const { code, field, collective, values, call, rank } = Object(error);
      await comm.allReduce({ send, op: "sum" });
      const sums = [...new Set(await send.toHost())];
      return { code, field, collective, values, call, rank, sums };
    });
    for (const [rank, found] of (await within(timeoutMs, running)).entries()) {
      // Numbers count the calls of a run.
      expectEqual(`rank ${rank}`, found, { ...facts, call: 0, rank, sums: sum });
    }
    await expectHealthy(ranksOf(world));
  }
}

async function checkPastGeneration(world: World): Promise<void> {
  const codeOf = (operation: PromiseLike<unknown>): PromiseLike<string> =>
    operation.then(
      () => "it was taken",
      (error: unknown) => String(Object(error).code),
    );
  const kept = await world.run(async (comm) => {
    const sub = await comm.split({ color: 0 });
    return { stale: comm, sub, buffer: comm.alloc("int32", 2).fill(5) };
  });
  const next = await world.rebuild();
  const codes = await next.run(async (comm) => {
    const { stale, sub, buffer } = kept[comm.rank] as (typeof kept)[number];
    return [
      await codeOf(stale.barrier()),
      await codeOf(sub.barrier()),
      await codeOf(comm.allReduce({ send: buffer, op: "sum" })),
      await codeOf(comm.allReduce({ send: comm.alloc("int32", 2), recv: buffer, op: "sum" })),
    ];
  });
  const refused = ["ERR_COMM_CLOSED", "ERR_COMM_CLOSED", "ERR_COMM_ARG", "ERR_COMM_ARG"];
  expectEqual("codes by rank", codes, new Array(next.size).fill(refused));
  const error = await failureOf(
    "a run in the old world",
    world.run(() => 0),
  );
  expectEqual("code", Object(error).code, "ERR_COMM_CLOSED");
  await expectHealthy(ranksOf(next));
  await next.close();
}

async function checkFailingRank(world: World): Promise<void> {
  const causeOf = async (work: Promise<unknown>): Promise<Record<string, unknown>> => {
    const error = await failureOf("a world with a failed rank", within(20_000, work));
    if (!(error instanceof WorldError)) throw error;
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
  await expectHealthy(ranksOf(world));
}
