/**
 * Failures that are never awaited: they must not end the process, and must not be lost. They poison the rank: the next
 * call, `close` and the run report them. The effect on the process itself is judged in a child of its own.
 */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { type CommError, createWorld, type WorldError } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { expectHealthy } from "../../support/planted.ts";

const root = fileURLToPath(new URL("../../../", import.meta.url));

/** Runs a program in a process that records what would have ended it; gives what it printed. */
function child(body: string): { readonly status: number | null; readonly printed: string[] } {
  const text = `
    import { createWorld, connect } from "twinccl";
    import { sim } from "twinccl/sim";
    process.on("unhandledRejection", () => console.log("unhandledRejection"));
    process.on("uncaughtException", () => console.log("uncaughtException"));
    process.on("exit", (status) => console.log("exit", status));
    ${body}
    await new Promise((resolve) => setTimeout(resolve, 20));`;
  const options = { cwd: root, encoding: "utf8", timeout: 60_000 } as const;
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    ["--input-type=module", "--eval", text],
    options,
  );
  return { status, printed: `${stdout}${stderr}`.trim().split("\n") };
}

describe("a failure that is not awaited", () => {
  test.concurrent.each([
    [
      "a wrong argument",
      `await world.run((comm) => { comm.broadcast({ root: 9 }); }).catch((e) => console.log(e.code));`,
      ["ERR_COMM_WORLD"],
    ],
    [
      "a mismatch",
      `await world.run((comm) => {
         comm.allReduce({ send: new Int8Array(comm.rank + 1), op: "sum" });
       }).catch((e) => console.log(e.failures.map(({ error }) => error.code).join()));`,
      ["ERR_COMM_MISMATCH,ERR_COMM_MISMATCH"],
    ],
    [
      "a call that is left open",
      `await world.run((comm) => { if (comm.rank === 0) comm.barrier(); })
         .catch((e) => console.log(e.failures.map(({ error }) => error.code).join()));`,
      ["ERR_COMM_DEADLOCK"],
    ],
    [
      "a call while the world is closed",
      `const run = world.run(async (comm) => {
         const op = comm.rank === 0 ? comm.barrier() : undefined;
         if (comm.rank === 0) await new Promise((resolve) => setTimeout(resolve, 10));
         else await new Promise((resolve) => setTimeout(resolve, 20));
       });
       setTimeout(() => world.close(), 5);
       await run.catch((e) => console.log(e.failures.map(({ error }) => error.code).join()));`,
      ["ERR_COMM_CLOSED"],
    ],
    [
      "an abort",
      `const run = world.run(async (comm) => {
         if (comm.rank === 0) comm.barrier();
         await new Promise((resolve) => setTimeout(resolve, 10));
         if (comm.rank === 1) comm.abort("stop");
       });
       await run.catch((e) => console.log(e.failures.map(({ error }) => error.code).join()));`,
      ["ERR_COMM_ABORTED"],
    ],
    [
      "a single rank outside of any run",
      `const comm = await connect({ backend: sim() });
       comm.broadcast({ root: 3 });
       await new Promise((resolve) => setTimeout(resolve, 5));
       await comm.close().catch((e) => console.log(e.code, e.cause.code));`,
      ["ERR_COMM_ABORTED ERR_COMM_ARG"],
    ],
  ])("does not end the process: %s", (_what, body, printed) => {
    const outcome = child(
      `const world = await createWorld({ backend: sim(), size: 2 }); ${body} await world.close();`,
    );
    expect(outcome).toEqual({ status: 0, printed: [...printed, "exit 0"] });
  });

  test("is reported by the next call of that rank, then by the run", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const seen: unknown[] = [];
    const run = world.run(async (comm) => {
      if (comm.rank === 1) comm.broadcast({ root: 5 });
      await comm.barrier().catch((error) => {
        if (comm.rank === 1) seen.push(error);
        throw error;
      });
    });
    const error = (await run.catch((failed) => failed)) as WorldError;
    expect(error.code).toBe("ERR_COMM_WORLD");
    expect(seen).toMatchObject([
      { code: "ERR_COMM_ABORTED", rank: 1, cause: { code: "ERR_COMM_ARG", field: "root" } },
    ]);
    expect(error.failures[0]?.rank).toBe(1);
    await expectHealthy(world);
    await world.close();
  });

  test("is reported by close", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const results = await world
      .run(async (comm) => {
        comm.broadcast({ root: 5 });
        return comm.close().then(
          () => "closed",
          (error) => (error as CommError).code,
        );
      })
      .catch((error: WorldError) => error.failures.map((failure) => failure.error));
    // The close reported it, but the operation itself was still never awaited: the run reports it once more.
    expect(results).toMatchObject([{ code: "ERR_COMM_ARG" }, { code: "ERR_COMM_ARG" }]);
    await world.close();
  });

  test("is reported by the run when there is no next call", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const run = world.run((comm) => {
      if (comm.rank === 2) comm.allReduce({ send: new Int8Array(1), op: "plus" as never });
    });
    await expect(run).rejects.toMatchObject({
      ranks: [2],
      failures: [{ rank: 2, error: { code: "ERR_COMM_ARG", field: "op" } }],
    });
    await expectHealthy(world);
    await world.close();
  });

  test("no longer counts when it is observed later", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const results = await world.run(async (comm) => {
      const op = comm.broadcast({ root: 5 });
      await new Promise((resolve) => setTimeout(resolve, 2));
      const code = await op.catch((error) => (error as CommError).code);
      await comm.barrier();
      return code;
    });
    expect(results).toEqual(["ERR_COMM_ARG", "ERR_COMM_ARG"]);
    await world.close();
  });

  test("does not poison the next run", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    await world.run((comm) => void comm.broadcast({ root: 5 })).catch(() => undefined);
    await expectHealthy(world);
    await world.close();
  });
});
