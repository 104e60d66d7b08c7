/** Wrong calls and rebuilds in a world of one process, on any backend. */
import {
  type Backend,
  type CommError,
  type Communicator,
  createWorld,
  type DeviceBuffer,
} from "twinccl";
import { describe, expect, test } from "vitest";
import { expectHealthy, within } from "../support/planted.ts";

/** The subject of the tests. */
export interface OneProcess {
  readonly name: string;
  readonly backend: () => Backend;
  readonly size: number;
  /** Worlds that are opened, used and closed one after the other. */
  readonly cycles: number;
}

const codeOf = (operation: PromiseLike<unknown>): PromiseLike<string> =>
  operation.then(
    () => "fine",
    (error: CommError) => error.code,
  );

/** All tests of one backend. */
export function oneProcess({ name, backend, size, cycles }: OneProcess): void {
  describe(`${name}, all ranks in one process`, () => {
    // One rank agrees with itself.
    if (size > 1)
      test("case 6: ranks that disagree on a count all get the same error, and the world continues", async () => {
        const world = await createWorld({ backend: backend(), size });
        for (let round = 0; round < 3; round++) {
          const seen = await within(
            2000,
            world.run(async (comm) => {
              const send = comm.alloc("float32", 64).fill(comm.rank + 1);
              const part = comm.rank === size - 1 ? send.subarray(0, 63) : send;
              const error: unknown = await comm
                .allReduce({ send: part, op: "sum" })
                .catch((caught) => caught);
              // Nothing was written: the same buffers still have the right sum.
              await comm.allReduce({ send, op: "sum" });
              return [error, new Set(await send.toHost())] as const;
            }),
          );
          for (const [rank, [error, sums]] of seen.entries()) {
            expect(error).toMatchObject({
              ...{ code: "ERR_COMM_MISMATCH", field: "count", collective: "allReduce" },
              ...{ call: 0, rank, values: [...new Array(size - 1).fill("64"), "63"] },
            });
            expect(sums).toEqual(new Set([(size * (size + 1)) / 2]));
          }
          await expectHealthy(world);
        }
        await world.close();
      });

    test("buffers, communicators and splits of the world before a rebuild are refused", async () => {
      const world = await createWorld({ backend: backend(), size });
      const kept: { comm: Communicator; sub: Communicator; buffer: DeviceBuffer<"int32"> }[] = [];
      await world.run(async (comm) => {
        const sub = await comm.split({ color: 0 });
        kept[comm.rank] = { comm, sub, buffer: comm.alloc("int32", 2).fill(5) };
      });
      const next = await world.rebuild();
      const codes = await next.run(async (comm) => {
        const { comm: stale, sub, buffer } = kept[comm.rank]!;
        return [
          await codeOf(stale.barrier()),
          await codeOf(sub.barrier()),
          await codeOf(comm.allReduce({ send: buffer, op: "sum" })),
          await codeOf(comm.allReduce({ send: comm.alloc("int32", 2), recv: buffer, op: "sum" })),
        ];
      });
      const refused = ["ERR_COMM_CLOSED", "ERR_COMM_CLOSED", "ERR_COMM_ARG", "ERR_COMM_ARG"];
      expect(codes).toEqual(new Array(size).fill(refused));
      await expect(world.run(() => 0)).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
      await expectHealthy(next);
      await next.close();
    });

    test(`${cycles} worlds opened, used and closed in a row`, async () => {
      for (let cycle = 0; cycle < cycles; cycle++) {
        const world = await createWorld({ backend: backend(), size });
        await expectHealthy(world);
        await world.close();
      }
    });

    test("case 9: no rank leaves a barrier before the last one enters", async () => {
      const world = await createWorld({ backend: backend(), size });
      let entered = 0;
      const seen = await world.run(async (comm) => {
        for (let wait = 0; wait < 3 * comm.rank; wait++) {
          await new Promise((resolve) => setTimeout(resolve, 5));
        }
        entered += 1;
        await comm.barrier();
        return entered;
      });
      expect(seen).toEqual(new Array(size).fill(size));
      await world.close();
    });
  });
}
