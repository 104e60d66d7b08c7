/** A program that hung ended at Ctrl-C without a word about the ranks that waited. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";

const main = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "twinccl-interrupted-"));
afterAll(() => rmSync(folder, { recursive: true }));

const entry = (path: string): string =>
  JSON.stringify(new URL(`../../dist/${path}/index.js`, import.meta.url).href);
const imports = `import { connect, createWorld } from ${entry("api")};
import { sim } from ${entry("backends/sim")};
`;

/** Ranks 0 and 1 wait for rank 2, which waits for a file that is never written. */
const hangs = `async (comm) => {
  if (comm.rank === 2) await new Promise((resolve) => setTimeout(resolve, 60_000));
  await comm.barrier();
}`;

/** Says that the program has a listener for SIGINT from here on, once it has. */
const sayWhenHeld = `
const beats = setInterval(() => {
  if (process.listenerCount("SIGINT") === 0) return;
  clearInterval(beats);
  console.log("held");
}, 20);
`;

function script(name: string, text: string): string {
  const path = join(folder, `${name}.mjs`);
  writeFileSync(path, text);
  return path;
}

interface End {
  readonly status: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Starts a program, interrupts it when it has printed \`held\`, and waits for its end. */
async function interrupted(...args: readonly string[]): Promise<End> {
  const child: ChildProcess = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] });
  const texts = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name]?.setEncoding("utf8").on("data", (text: string) => {
      texts[name] += text;
      if (text.includes("held")) child.kill("SIGINT");
    });
  }
  const [status, signal] = await once(child, "close");
  return { status, signal, ...texts };
}

const rows = (name: string, place: string): string =>
  [
    `interrupted while ranks of "${name}" wait`,
    `  rank 0  waits in barrier                   call 0 on "${name}"  for rank 2${place}`,
    `  rank 1  waits in barrier                   call 0 on "${name}"  for rank 2${place}`,
    "  rank 2  runs, or waits for something else",
    "",
  ].join("\n");

describe("SIGINT on a hang prints the waiting ranks and their lines, and ends", () => {
  test("a program", async () => {
    const text = `${imports}${sayWhenHeld}
      const world = await createWorld({ backend: sim(), size: 3 });
      await world.run(${hangs});\n`;
    const { signal, stderr } = await interrupted(script("plain", text));
    expect(signal).toBe("SIGINT");
    expect(stderr).toContain(rows("world", ""));
    expect(stderr).toContain("createWorld({ callSites: true })");
  });

  test("a program under run, with the lines of the calls", async () => {
    const path = script("run", `${sayWhenHeld}export default ${hangs};\n`);
    const { signal, stderr } = await interrupted(main, "run", path, "-n", "3");
    expect(signal).toBe("SIGINT");
    expect(stderr).toBe(rows("run", `  ${path}:9:14`));
  });

  test("a launched process, behind its rank", async () => {
    const text = `${imports}${sayWhenHeld}
      const world = await createWorld({ backend: sim(), size: 3 });
      await world.run(${hangs});\n`;
    const { status, stderr } = await interrupted(main, "launch", "-n", "1", script("rank", text));
    expect(status).toBe(130);
    expect(stderr).toContain(rows("world", "").replace(/^(?=.)/gm, "[0] "));
  });
});

describe("the listener", () => {
  test("is absent while no call hangs, and once a hanging call continues", async () => {
    const text = `${imports}
      const world = await createWorld({ backend: sim(), size: 2 });
      const count = () => process.listenerCount("SIGINT");
      const counts = [];
      await world.run(async (comm) => {
        for (let step = 0; step < 4; step++) {
          await new Promise((resolve) => setTimeout(resolve, 100));
          await comm.barrier();
          if (comm.rank === 0) counts.push(count());
        }
        if (comm.rank === 0) while (count() === 0) await new Promise((resolve) => setTimeout(resolve, 20));
        await comm.barrier();
        // A signal that came before is delivered meanwhile.
        for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setImmediate(resolve));
        counts.push(count());
      });
      console.log(JSON.stringify([counts, count()]), "held");
      setTimeout(() => {}, 60_000);\n`;
    const { signal, stdout, stderr } = await interrupted(script("goes-on", text));
    expect(JSON.parse(stdout.replace("held", ""))).toEqual([[0, 0, 0, 0, 0, 0], 0]);
    expect({ signal, stderr }).toEqual({ signal: "SIGINT", stderr: "" });
  });

  test("leaves SIGINT to a program that has one of its own", async () => {
    const text = `${imports}
      const world = await createWorld({ backend: sim(), size: 3 });
      process.on("SIGINT", () => process.exit(7));
      setTimeout(() => console.log("held", process.listenerCount("SIGINT")), 1_000);
      await world.run(${hangs});\n`;
    const { status, stdout, stderr } = await interrupted(script("own", text));
    expect({ status, stdout, stderr }).toEqual({ status: 7, stdout: "held 1\n", stderr: "" });
  });

  test("does not prevent the detection of a deadlock", async () => {
    const text = `${imports}import { createServer } from "node:http";
      await new Promise((resolve) => createServer().listen(0, "127.0.0.1", resolve));
      const world = await createWorld({ backend: sim(), size: 2 });
      const run = world.run(async (comm) => {
        if (comm.rank === 0) return comm.barrier();
        while (process.listenerCount("SIGINT") === 0) await new Promise((resolve) => setTimeout(resolve, 20));
      });
      const { code } = (await run.catch((error) => error)).cause;
      // A signal in the moment in which the listener is removed is lost.
      while (process.listenerCount("SIGINT") > 0) await new Promise((resolve) => setTimeout(resolve, 20));
      console.log(code, "held");\n`;
    const { signal, stdout } = await interrupted(script("deadlock", text));
    expect({ signal, stdout }).toEqual({ signal: "SIGINT", stdout: "ERR_COMM_DEADLOCK held\n" });
  });
});
