/** The suite on worlds of one process, and the further duties of such a world. */

import { type Backend, createWorld, type World } from "twinccl";
import { afterAll, describe, expect, test } from "vitest";
import { crossed } from "../support/messages.ts";
import { OpenWorlds } from "../support/open-worlds.ts";
import { expectHealthy, within } from "../support/planted.ts";
import { parts } from "./parts.ts";
import { type Claims, conformance, type SuiteRanks } from "./suite.ts";

/** A backend with all ranks in one process. */
export interface WorldCandidate extends Claims {
  readonly backend: () => Backend;
  /** One world of each size for all tests that leave theirs well, where opening takes long. */
  readonly keepsWorlds?: boolean;
}

type UseWorld = <T>(size: number, use: (world: World) => Promise<T>) => Promise<T>;

/** A deadlock is found at once, so this is never reached. */
const patienceMs = 30_000;

/** The ranks of a world. What they are given and give is copied, as it is between processes. */
function ranksOf(world: World): SuiteRanks {
  return {
    size: world.size,
    each: async (part, ...args) => {
      const play = parts[part] as (...given: unknown[]) => unknown;
      const running = world.run((comm) => play(comm, ...crossed(args)));
      return crossed(await within(patienceMs, running)) as never;
    },
  };
}

/** Runs every test on one backend. */
export function worldsConform(candidate: WorldCandidate): void {
  const { backend, keepsWorlds = false, ...claims } = candidate;
  const kept = new OpenWorlds(backend);
  afterAll(() => kept.close());

  const inWorld: UseWorld = async (size, use) => {
    if (keepsWorlds) return kept.use(size, use);
    const world = await createWorld({ backend: backend(), size });
    try {
      return await use(world);
    } finally {
      await world.close();
    }
  };

  conformance({
    ...claims,
    backend: backend().name,
    use: (size, use) => inWorld(size, (world) => use(ranksOf(world))),
  });
  aWorldConforms(candidate, inWorld);
}

/** Tests of the world, not of its communicators. */
function aWorldConforms({ name, backend, sizes }: WorldCandidate, inWorld: UseWorld): void {
  const least = sizes[0] as number;
  const most = sizes.at(-1) as number;

  describe(`a world of ${name}`, () => {
    test("is available, and names the requested backend", async () => {
      const probe = await backend().probe({ size: least, name: "world" });
      expect(probe).toMatchObject({ ok: true, reason: expect.any(String) });
      await inWorld(least, async (world) => {
        expect(world.backend).toBe(backend().name);
      });
    });

    test("fails the other ranks when one throws or leaves, and continues", async () => {
      if (most === 1) return;
      await inWorld(most, async (world) => {
        const thrown = world.run((comm) => {
          if (comm.rank === 0) throw new Error("mine");
          return comm.barrier();
        });
        await expect(within(20_000, thrown)).rejects.toMatchObject({ cause: { message: "mine" } });
        const left = world.run((comm) => (comm.rank === 0 ? undefined : comm.barrier()));
        await expect(within(20_000, left)).rejects.toMatchObject({
          cause: { code: "ERR_COMM_DEADLOCK", ranks: [0] },
        });
        await expectHealthy(world);
      });
    });

    test("closes permanently", async () => {
      const world = await createWorld({ backend: backend(), size: least });
      await world.close();
      await world.close();
      await expect(world.run(() => 0)).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
    });

    test("explains a call as its ranks do", async () => {
      await inWorld(most, async (world) => {
        const question = {
          collective: "allReduce",
          dtype: "float32",
          op: "sum",
          count: 100,
        } as const;
        const plan = world.explain(question);
        expect(plan).toMatchObject({ collective: "allReduce", ranks: most });
        const told = await world.run((comm) => String(comm.explain(question)));
        expect(told).toEqual(new Array(most).fill(String(plan)));
      });
    });
  });
}
