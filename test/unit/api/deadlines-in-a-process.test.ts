/** Deadlines in real time in a process that does nothing else: it ends when its program does, and not before a call is late. */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("../../../", import.meta.url));

/** Runs a program on two ranks of a simulation with a hidden clock; gives its output and duration. */
async function child(body: string): Promise<{ printed: string[]; ms: number }> {
  const text = `
    import { createWorld } from "twinccl";
    import { sim } from "twinccl/sim";
    const virtual = sim();
    const hide = (session, key) => {
      if (key === "scheduler") {
        const wakeOrder = (set) => session.scheduler.wakeOrder(set);
        return { wakeOrder, schedule: undefined, clock: undefined };
      }
      const value = session[key];
      return typeof value === "function" ? value.bind(session) : value;
    };
    const open = async (request) => new Proxy(await virtual.open(request), { get: hide });
    const world = await createWorld({ backend: { ...virtual, open }, size: 2 });
    const outcome = async (call) => {
      const startMs = performance.now();
      const code = await call().then(() => "ok", (error) => error.code);
      return [code, performance.now() - startMs >= 150];
    };
    const startMs = performance.now();
    process.on("exit", () => console.log(performance.now() - startMs));
    ${body}`;
  const command = ["--input-type=module", "--eval", text];
  const { stdout } = await promisify(execFile)(process.execPath, command, {
    cwd: root,
    timeout: 60_000,
  });
  const printed = stdout.trim().split("\n");
  return { ms: Number(printed.pop()), printed };
}

/** Half of the deadlines below. */
const soonMs = 30_000;

describe.concurrent("a process", () => {
  test("ends with its program, whatever the deadlines of its calls", async () => {
    const { printed, ms } = await child(`
      await world.run(async (comm) => {
        for (let call = 0; call < 20; call++) await comm.barrier({ timeoutMs: 60_000 + call % 3 });
      });
      console.log("done");`);
    expect(printed).toEqual(["done"]);
    expect(ms).toBeLessThan(soonMs);
  });

  test("finds a deadlock as fast after calls with deadlines as after others", async () => {
    const { printed, ms } = await child(`
      const ranks = await world.run(async (comm) => {
        await comm.barrier({ timeoutMs: 60_000 });
        return comm.rank === 0 ? outcome(() => comm.barrier()) : "away";
      });
      console.log(ranks[0][0]);`);
    expect(printed).toEqual(["ERR_COMM_DEADLOCK"]);
    expect(ms).toBeLessThan(soonMs);
  });

  test.each([
    [60_000, "an earlier"],
    [50, "a later"],
  ])("waits for a deadline, after a call with one of %i ms for %s end", async (beforeMs) => {
    const { printed, ms } = await child(`
      const ranks = await world.run(async (comm) => {
        await comm.barrier({ timeoutMs: ${beforeMs} });
        return comm.rank === 0 ? outcome(() => comm.barrier({ timeoutMs: 150 })) : "away";
      });
      console.log(ranks.join());`);
    expect(printed).toEqual(["ERR_COMM_TIMEOUT,true,away"]);
    expect(ms).toBeLessThan(soonMs);
  });
});
