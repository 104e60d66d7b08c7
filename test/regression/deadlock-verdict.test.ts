/** Deadlocks that once were no more than a stall, or not decided at all, because of something that could not wake a rank. */
import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { type Communicator, createWorld, type World } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { within } from "../support/planted.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));

const opening = `
  import { createServer } from "node:net";
  import { createWorld } from "twinccl";
  import { sim } from "twinccl/sim";
  const tell = ({ cause }) => console.error("code", cause.code);
  const world = await createWorld({ backend: sim(), size: 2 });`;

/** A program's standard error; its standard output is a pipe. */
async function errors(body: string): Promise<string> {
  const command = ["--input-type=module", "--eval", opening + body];
  const child = spawn(process.execPath, command, { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  let text = "";
  child.stderr.setEncoding("utf8").on("data", (part) => {
    text += part;
  });
  await within(20_000, new Promise((resolve) => child.once("close", resolve)));
  return text;
}

async function worldOf(size: number): Promise<World> {
  const world = await createWorld({ backend: sim(), size });
  onTestFinished(() => world.close());
  return world;
}

const stuck = (comm: Communicator) => (comm.rank === 0 ? comm.barrier() : undefined);
const verdict = { failures: [{ rank: 0, error: { code: "ERR_COMM_DEADLOCK", ranks: [1] } }] };
const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

describe("a deadlock is decided", () => {
  test("though a rank is the first to print into a pipe, and a server is alive", async () => {
    const printed = await errors(`
      const server = createServer();
      await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
      await world.run(async (comm) => {
        console.log("hello");
        if (comm.rank === 1) await comm.barrier();
      }).catch(tell);
      server.close();`);
    expect(printed).toBe("code ERR_COMM_DEADLOCK\n");
  });

  test("though a timer lives that is older than the run", async () => {
    const printed = await errors(`
      const timer = setInterval(() => {}, 1000);
      await world.run((comm) => comm.rank === 0 ? comm.barrier() : undefined).catch(tell);
      clearInterval(timer);`);
    expect(printed).toBe("code ERR_COMM_DEADLOCK\n");
  });

  test("though a timer is set right beside the run", async () => {
    const printed = await errors(`
      let timer;
      const late = new Promise((_, reject) => { timer = setTimeout(reject, 60_000); });
      const run = world.run((comm) => comm.rank === 0 ? comm.barrier() : undefined);
      await Promise.race([run, late]).catch(tell);
      clearTimeout(timer);`);
    expect(printed).toBe("code ERR_COMM_DEADLOCK\n");
  });

  test("though the deadline of another call that is awaited beside it came first", async () => {
    const world = await worldOf(3);
    const timer = setInterval(() => undefined, 1000);
    const results = await within(
      3000,
      world.run(async (comm) => {
        const part = await comm.split({ color: 0 });
        if (comm.rank === 2) return [];
        const awaited = [part.barrier({ timeoutMs: 2 }), comm.barrier()];
        return Promise.all(awaited.map((op) => op.then(undefined, ({ code }) => code)));
      }),
    ).finally(() => clearInterval(timer));
    const codes = (first: string) => [first, "ERR_COMM_DEADLOCK"];
    expect(results).toEqual([codes("ERR_COMM_TIMEOUT"), codes("ERR_COMM_ABORTED"), []]);
  });

  test("though something is opened outside of the ranks while they run", async () => {
    const world = await worldOf(2);
    const run = world.run(async (comm) => {
      await sleep(2);
      return stuck(comm);
    });
    const timer = setInterval(() => undefined, 1000);
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    await expect(within(5000, run)).rejects.toMatchObject(verdict);
    clearInterval(timer);
    server.close();
  });

  test("though ranks had timers that have ended, or were stopped", async () => {
    const world = await worldOf(2);
    const outside = setInterval(() => undefined, 1000);
    const run = world.run(async (comm) => {
      const timers = Array.from({ length: 100 }, () => setTimeout(() => undefined, 60_000));
      await sleep(1);
      for (const timer of timers) clearTimeout(timer);
      return stuck(comm);
    });
    await expect(within(5000, run)).rejects.toMatchObject(verdict);
    clearInterval(outside);
  });
});

describe("a deadlock is not decided", () => {
  test("while a rank's timer lives, whatever lived before the run", async () => {
    const world = await worldOf(2);
    const outside = setInterval(() => undefined, 1000);
    const run = world.run(async (comm) => {
      await sleep(1);
      const woken = sleep(60).then(() => "woken");
      return comm.rank === 1 ? "away" : Promise.race([comm.barrier(), woken]);
    });
    expect(await run).toEqual(["woken", "away"]);
    clearInterval(outside);
  });

  test("while a rank awaits what a timer from before the run resolves", async () => {
    const outside = sleep(60);
    const world = await worldOf(2);
    await world.run(async (comm) => {
      if (comm.rank === 1) await outside;
      await comm.barrier();
    });
  });

  test("while a rank waits for a connection in one branch, and for a call in another", async () => {
    const server = createServer((socket) => setTimeout(() => socket.end("go"), 60));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    const { port } = server.address() as { port: number };
    const world = await worldOf(2);
    await world.run(async (comm) => {
      const other = (await comm.split({ color: 0, stream: "own" })) as Communicator;
      if (comm.rank === 1) {
        await comm.barrier();
        return other.barrier();
      }
      const { connect } = await import("node:net");
      const heard = new Promise((resolve) => connect(port, "127.0.0.1").once("data", resolve));
      await Promise.all([other.barrier(), heard.then(() => comm.barrier())]);
    });
  });
});

describe("a rank may wake", () => {
  test.each(["setTimeout(resolve, 100).unref()", "AbortSignal.timeout(100).onabort = resolve"])(
    "by a timer of its own that keeps nothing alive: %s",
    async (timer) => {
      const printed = await errors(`
        const outside = setInterval(() => {}, 1000);
        await world.run(async (comm) => {
          const go = await comm.split({ color: 0, stream: "own" });
          if (comm.rank === 1) {
            await comm.barrier();
            await go.barrier();
            return;
          }
          await Promise.race([go.barrier(), new Promise((resolve) => { ${timer}; })]);
          await comm.barrier();
        }).then(() => console.error("went on"), tell);
        clearInterval(outside);`);
      // Behind it comes the warning of the order of calls on different streams.
      expect(printed.split("\n")[0]).toBe("went on");
    },
  );
});

test("a deadlock is decided under fake timers", async () => {
  const world = await worldOf(2);
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const run = world.run(async (comm) => {
    if (comm.rank === 1) return comm.barrier();
    for (let file = 0; file < 5; file++) await readFile(fileURLToPath(import.meta.url));
  });
  await expect(run).rejects.toMatchObject({ cause: { code: "ERR_COMM_DEADLOCK" } });
});
