/** A process of a job that ends without `close`: unobserved failures are reported, and change nothing else. */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("../../../", import.meta.url));

/** The standard error of a program that has connected; its exit code must be 0. */
async function warnings(body: string): Promise<string> {
  const text = `
    import { connect } from "twinccl";
    import { sim } from "twinccl/sim";
    const comm = await connect({ backend: sim() });
    const wrong = () => comm.broadcast({ recv: comm.alloc("int8", 1), root: 7 });
    ${body}`;
  const command = ["--expose-gc", "--input-type=module", "--eval", text];
  const { stderr } = await promisify(execFile)(process.execPath, command, {
    cwd: root,
    timeout: 60_000,
  });
  return stderr;
}

describe.concurrent("a process that ends without close", () => {
  test("warns of a failure that was not awaited, and of its cause", async () => {
    const text = await warnings("wrong();");
    expect(text).toMatch(
      /TwincclUnseenFailure: rank 0: a call on "world" failed and was never awaited/,
    );
    expect(text).toMatch(/cause: InvalidArgumentError: broadcast: root/);
    expect(text.match(/UnseenFailure/g)).toHaveLength(1);
  });

  test("reports each failure once, also if the runtime continues after its last turn, with one listener", async () => {
    const text = await warnings(`
      wrong();
      const others = [];
      for (let i = 0; i < 20; i++) others.push(await connect({ backend: sim() }));
      process.once("beforeExit", () => setTimeout(() => others[3].barrier({ timeoutMs: -1 }), 5));`);
    expect(text.match(/UnseenFailure: rank 0/g)).toHaveLength(2);
    expect(text).toMatch(/cause: InvalidArgumentError: barrier: timeoutMs/);
    expect(text).not.toMatch(/MaxListeners/);
  });

  test("does not keep dropped communicators in memory", async () => {
    const text = await warnings(`
      const refs = [];
      for (let i = 0; i < 8; i++) refs.push(new WeakRef(await connect({ backend: sim() })));
      await new Promise((resolve) => setTimeout(resolve, 10));
      globalThis.gc();
      console.error(refs.filter((ref) => ref.deref() !== undefined).length < 3);`);
    expect(text).toBe("true\n");
  });

  test("says nothing of failures that were reported, or awaited", async () => {
    // A communicator each, in one process.
    const bodies = [
      "const half = await comm.split({ color: 0 }); half.barrier({ timeoutMs: -1 }); await half.close().catch(() => undefined);",
      "wrong(); await comm.barrier().catch(() => undefined);",
      "comm.barrier();",
      "await wrong().catch(() => undefined);",
      "wrong(); await comm.close().catch(() => undefined);",
    ];
    const blocks = bodies.map(
      (body) => `{
      const comm = await connect({ backend: sim() });
      const wrong = () => comm.broadcast({ recv: comm.alloc("int8", 1), root: 7 });
      ${body}
    }`,
    );
    expect(await warnings(blocks.join("\n"))).toBe("");
  });
});
