/** Stalls that fail the open calls, where once a warning was all that came of them. */
import { type CommError, createWorld, type World, type WorldOptions } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { fakeGpus } from "../support/fake-gpus/index.ts";
import { within } from "../support/planted.ts";

type Stall = WorldOptions["stall"];

const backends: [string, () => WorldOptions["backend"]][] = [
  ["the simulation", sim],
  ["GPUs", () => fakeGpus().backend()],
];

/** Process warnings of the test, which print nothing. */
function warnings(): string[] {
  const texts: string[] = [];
  const spy = vi.spyOn(process, "emitWarning").mockImplementation((text) => {
    texts.push(String(text));
  });
  onTestFinished(() => spy.mockRestore());
  return texts;
}

/** Two ranks of which one opens an interval and returns, and the other one waits for it. */
async function stalled(
  world: World,
  timers: NodeJS.Timeout[],
): Promise<readonly { readonly rank: number; readonly error: CommError }[]> {
  const run = world.run(async (comm) => {
    if (comm.rank === 0) return comm.barrier();
    timers.push(setInterval(() => undefined, 1000));
  });
  const error = await within(
    10_000,
    run.then(null, (failed) => failed),
  );
  return error.failures;
}

describe.each(backends)("on %s", (_, backend) => {
  async function worldOf(options: Omit<WorldOptions, "backend" | "size">): Promise<World> {
    const world = await createWorld({ backend: backend(), size: 2, stallMs: 30, ...options });
    onTestFinished(() => world.close());
    return world;
  }

  function timersOfTest(): NodeJS.Timeout[] {
    const timers: NodeJS.Timeout[] = [];
    onTestFinished(() => timers.forEach(clearInterval));
    return timers;
  }

  test("fail: an interval that a rank opened keeps no call open, and the world continues", async () => {
    const texts = warnings();
    const world = await worldOf({ stall: "fail" });
    const failures = await stalled(world, timersOfTest());
    expect(failures).toMatchObject([
      {
        rank: 0,
        error: {
          ...{ name: "CommTimeoutError", code: "ERR_COMM_TIMEOUT", rank: 0, size: 2, ranks: [1] },
          ...{ comm: "world", collective: "barrier", call: 0 },
        },
      },
    ]);
    expect(failures[0]?.error.message).toMatch(
      /^stalled: rank 0 waits, .*\n {2}rank 0 {2}waits in barrier {2}call 0 on "world" {2}for rank 1\n {2}rank 1 {2}has finished\n/,
    );
    expect(failures[0]?.error.message).toMatch(/nothing moved for 30 ms/);
    expect(texts).toEqual([]);
    expect(await world.run((comm) => comm.barrier().then(() => comm.rank))).toEqual([0, 1]);
  });

  test("fail: calls of splits and later calls fail too", async () => {
    const world = await worldOf({ stall: "fail" });
    const timers = timersOfTest();
    const codes: string[] = [];
    const run = world.run(async (comm) => {
      const pair = await comm.split({ color: 0 });
      if (comm.rank === 1) return void timers.push(setInterval(() => undefined, 1000));
      for (const each of [pair, pair, comm]) {
        await each.barrier().catch((error: unknown) => codes.push((error as CommError).code));
      }
    });
    await within(10_000, run);
    expect(codes).toEqual(["ERR_COMM_TIMEOUT", "ERR_COMM_TIMEOUT", "ERR_COMM_TIMEOUT"]);
  });

  test("fail: onStall gets the report first", async () => {
    const reports: string[] = [];
    const world = await worldOf({ stall: "fail", onStall: ({ text }) => reports.push(text) });
    const [failure] = await stalled(world, timersOfTest());
    expect(reports).toHaveLength(1);
    expect(reports[0]).toMatch(/^stalled: rank 0 waits/);
    expect(failure?.error.code).toBe("ERR_COMM_TIMEOUT");
  });

  test.each([["report"], [undefined]] as [Stall][])(
    "%s: a warning, and the call stays open",
    async (stall) => {
      const texts = warnings();
      const world = await worldOf({ stall });
      const timers = timersOfTest();
      let status = "";
      await within(
        10_000,
        world.run(async (comm) => {
          if (comm.rank === 1) {
            await vi.waitFor(() => expect(texts).toHaveLength(1), 5000);
            return comm.barrier();
          }
          timers.push(setInterval(() => undefined, 1000));
          const op = comm.barrier();
          await op;
          status = op.status;
        }),
      );
      expect(texts[0]).toMatch(/^stalled: rank 0 waits/);
      expect(status).toBe("done");
    },
  );
});

test.each([["fails"], [true], [null], [1]])("stall: %s is refused", async (stall) => {
  const options = { backend: sim(), size: 2, stall: stall as Stall };
  await expect(createWorld(options)).rejects.toMatchObject({
    code: "ERR_COMM_ARG",
    field: "stall",
    message: expect.stringContaining('needs "report" or "fail"'),
  });
});
