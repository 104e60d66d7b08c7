/** `twinccl launch` with `--timeout` and `--json`, and on a terminal: real processes. */
import { writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { afterEach, describe, expect, test, vi } from "vitest";
import { scriptReason } from "../../support/skipped.ts";
import { isRunning, launch, scratch, script } from "../job/launched.ts";
import { cli } from "./harness.ts";

/** The events of a launch, in the order of their times. */
function eventsOf(lines: readonly string[]): Record<string, unknown>[] {
  const events = lines.map((line) => JSON.parse(line) as { time_ms: number });
  return events.sort((a, b) => a.time_ms - b.time_ms) as unknown as Record<string, unknown>[];
}

const named = (events: readonly Record<string, unknown>[], name: string) =>
  events.filter(({ event }) => event === name);

const lasting = "setInterval(() => undefined, 1000);";

describe("--timeout", () => {
  test("stops a job with status 124, and names the ranks that ran", async () => {
    const path = script("timeout.mjs", `console.log(process.pid); if (rank !== 1) ${lasting}`);
    const { status, err, lines } = await launch(["-n", "3", "--timeout", "3.5", path]).ended;
    expect(status).toBe(124);
    expect(err).toMatch(
      /^twinccl launch: timed out after 3\.5 s with ranks 0, 2 still running; rank \d was stopped after \d+\.\d s: SIGTERM; rank \d stopped; rank 1 ended well\n$/,
    );
    const pids = lines.map((line) => Number(line.split(" ")[1]));
    expect(pids).toHaveLength(3);
    expect(pids.filter(isRunning)).toEqual([]);
  });

  test("kills ranks that ignore SIGTERM after the grace time", async () => {
    const path = script(
      "ignores.mjs",
      `process.on("SIGTERM", () => console.log("no")); ${lasting}`,
    );
    const args = ["-n", "2", "--timeout", "3", "--grace", "0.5", path];
    const { status, err, lines } = await launch(args).ended;
    expect({ status, lines }).toEqual({ status: 124, lines: ["[0] no", "[1] no"] });
    expect(err).toMatch(/with ranks 0, 1 still running; rank \d was stopped after .*: SIGKILL/);
  });

  test("is status 124 when all ranks end well at SIGTERM", async () => {
    const path = script("well.mjs", `process.on("SIGTERM", () => process.exit(0)); ${lasting}`);
    const { status, err } = await launch(["-n", "2", "--timeout", "3", path]).ended;
    expect(status).toBe(124);
    expect(err).toBe(
      "twinccl launch: timed out after 3 s with ranks 0, 1 still running; ranks 0, 1 ended well\n",
    );
  });

  test("with --on-failure keep names the rank that failed before", async () => {
    const path = script("kept.mjs", `if (rank === 0) process.exit(3); ${lasting}`);
    const args = ["-n", "2", "--on-failure", "keep", "--timeout", "3", path];
    const { status, err } = await launch(args).ended;
    expect(status).toBe(124);
    expect(err).toMatch(
      /timed out after 3 s with rank 1 still running; rank 0 failed first after \d\.\d s: exit status 3; rank 1 stopped\n$/,
    );
  });

  test("of a job that ends, or is stopped already, has no effect", async () => {
    const ends = script("ends.mjs", `console.log("end");`);
    const begun = performance.now();
    const well = await launch(["-n", "2", "--timeout", "30", ends]).ended;
    expect({ status: well.status, err: well.err }).toEqual({ status: 0, err: "" });
    expect(performance.now() - begun).toBeLessThan(20_000);
    const fails = script(
      "stopping.mjs",
      `process.on("SIGTERM", () => undefined);
       console.log("up");
       if (rank === 0) setTimeout(() => process.exit(5), 1000);
       ${lasting}`,
    );
    const args = ["-n", "2", "--timeout", "3", "--grace", "5", fails];
    const { status, err } = await launch(args).ended;
    expect(status).toBe(5);
    expect(err).not.toContain("timed out");
  });
});

describe("--json", () => {
  test("writes every event of a job that ends well, and nothing else", async () => {
    const path = script(
      "well-json.mjs",
      `console.log("to stdout"); process.stderr.write("to stderr"); console.error();`,
    );
    const args = ["-n", "3", "--hosts", "2", "--json", path, "a b"];
    const { status, lines, err } = await launch(args).ended;
    expect({ status, err }).toEqual({ status: 0, err: "" });
    const events = eventsOf(lines);
    expect(events.at(0)).toEqual({
      ...{ event: "job_started", time_ms: expect.any(Number), ranks: 3, hosts: 2 },
      ...{ job: expect.stringMatching(/^launch-/), pid: expect.any(Number) },
      ...{ command: [path, "a b"], unix_ms: expect.any(Number) },
    });
    expect(events.at(-1)).toEqual({
      ...{ event: "job_ended", time_ms: expect.any(Number) },
      ...{ status: 0, first_failed: null, message: null },
    });
    const places = named(events, "rank_started").map((each) => [
      ...[each["rank"], each["host"], each["local_rank"]],
    ]);
    expect(places).toEqual([
      [0, 0, 0],
      [1, 0, 1],
      [2, 1, 0],
    ]);
    for (const rank of [0, 1, 2]) {
      const own = events.filter((event) => event["rank"] === rank);
      const output = named(own, "output").map(({ stream, text }) => `${stream}: ${text}`);
      expect(output.sort()).toEqual(["stderr: to stderr", "stdout: to stdout"]);
      expect(named(own, "rank_exited")).toEqual([
        {
          ...{ event: "rank_exited", time_ms: expect.any(Number), rank, status: 0, code: 0 },
          ...{ signal: null, how: "exit status 0", stopped: false },
        },
      ]);
    }
    expect(events).toHaveLength(2 + 3 * 4);
  });

  test("names the failed rank, the signals sent, and the status", async () => {
    const path = script("fails-json.mjs", `if (rank === 1) process.exit(7); ${lasting}`);
    const { status, lines, err } = await launch(["-n", "2", "--json", path]).ended;
    expect(status).toBe(7);
    const events = eventsOf(lines);
    const story = events
      .filter(({ event }) => !["job_started", "rank_started"].includes(String(event)))
      .map(({ time_ms, ...event }) => event);
    expect(story).toEqual([
      {
        ...{ event: "rank_exited", rank: 1, status: 7, code: 7, signal: null },
        ...{ how: "exit status 7", stopped: false },
      },
      { event: "signal_sent", signal: "SIGTERM", ranks: [0] },
      {
        ...{ event: "rank_exited", rank: 0, status: 143, code: null, signal: "SIGTERM" },
        ...{ how: "SIGTERM", stopped: true },
      },
      {
        ...{ event: "job_ended", status: 7, first_failed: 1 },
        message: expect.stringMatching(
          /^rank 1 failed first after .*: exit status 7; rank 0 stopped$/,
        ),
      },
    ]);
    expect(err).toBe(`twinccl launch: ${story.at(-1)?.["message"]}\n`);
  });

  test("has the timeout and the kill after it", async () => {
    const path = script("timeout-json.mjs", `process.on("SIGTERM", () => undefined); ${lasting}`);
    const args = ["-n", "1", "--json", "--timeout", "3", "--grace", "0.5", path];
    const { status, lines } = await launch(args).ended;
    expect(status).toBe(124);
    const story = eventsOf(lines).map(({ event, signal, ranks, timeout_ms, first_failed }) => ({
      ...{ event, signal, ranks, timeout_ms, first_failed },
    }));
    expect(story.slice(2)).toEqual([
      { event: "timeout", timeout_ms: 3_000, ranks: [0] },
      { event: "signal_sent", signal: "SIGTERM", ranks: [0] },
      { event: "signal_sent", signal: "SIGKILL", ranks: [0] },
      { event: "rank_exited", signal: "SIGKILL" },
      { event: "job_ended", first_failed: null },
    ]);
  });

  test("reports a signal that was handed on", async () => {
    const run = launch(["-n", "1", "--json", script("int.mjs", `console.log("up"); ${lasting}`)]);
    await run.printed('"text":"up"');
    run.process.kill("SIGINT");
    const { status, lines } = await run.ended;
    expect(status).toBe(130);
    expect(named(eventsOf(lines), "signal_sent")).toMatchObject([{ signal: "SIGINT", ranks: [0] }]);
  });

  test("reports SIGUSR1 and SIGUSR2 that were handed on, which end no job", async () => {
    const path = script(
      "usr.mjs",
      `process.on("SIGUSR1", () => console.log("one", rank));
       process.on("SIGUSR2", () => process.exit(0));
       console.log("up", rank); ${lasting}`,
    );
    const run = launch(["-n", "2", "--json", path]);
    for (const rank of [0, 1]) await run.printed(`"text":"up ${rank}"`);
    run.process.kill("SIGUSR1");
    for (const rank of [0, 1]) await run.printed(`"text":"one ${rank}"`);
    run.process.kill("SIGUSR2");
    const { status, err, lines } = await run.ended;
    expect({ status, err }).toEqual({ status: 0, err: "" });
    expect(named(eventsOf(lines), "signal_sent")).toMatchObject([
      { signal: "SIGUSR1", ranks: [0, 1] },
      { signal: "SIGUSR2", ranks: [0, 1] },
    ]);
  });

  test("reports a process that could not start", async () => {
    const path = script("waits.mjs", lasting);
    const limited = 'ulimit -n 80; exec "$@"';
    const job = launch(["-n", "40", "--json", "--grace", "1", path], {}, [
      ...["sh", "-c", limited, "sh"],
    ]);
    const { status, lines } = await job.ended;
    expect(status).toBe(127);
    const events = eventsOf(lines);
    const failed = events.filter(({ event, status }) => event === "rank_exited" && status === 127);
    expect(failed[0]).toMatchObject({ code: null, signal: null, stopped: false });
    expect(failed[0]?.["how"]).toMatch(/^it could not start: .*EMFILE/);
    expect(named(events, "job_ended")).toMatchObject([{ first_failed: failed[0]?.["rank"] }]);
  });

  test("ends with the job, after unfinished lines of pipes that a descendant holds open", async () => {
    const path = script(
      "held.mjs",
      `import { spawn } from "node:child_process";
       process.stdout.write("unfinished");
       const loop = "setTimeout(() => undefined, 5000)";
       spawn(process.execPath, ["-e", loop], { detached: true, stdio: ["ignore", "inherit", "ignore"] }).unref();`,
    );
    const inOrder = ["sh", "-c", '"$@" | cat -n', "sh"];
    const { lines } = await launch(["-n", "1", "--json", path], {}, inOrder).ended;
    const events = lines
      .map((line) => line.replace(/^\s*\d+\s*/, ""))
      .map((line) => JSON.parse(line));
    expect(events.map(({ event }) => event)).toEqual([
      ...["job_started", "rank_started", "rank_exited", "output", "job_ended"],
    ]);
    expect(events[3]).toMatchObject({ text: "unfinished", newline: false });
  });

  test("loses no line of much output", async () => {
    const path = script("much-json.mjs", `for (let i = 0; i < 20000; i++) console.log("ü", i);`);
    const { lines } = await launch(["-n", "2", "--json", path]).ended;
    const output = named(eventsOf(lines), "output");
    expect(new Set(output.map(({ rank, text }) => `${rank} ${text}`)).size).toBe(40_000);
  });
});

describe("on a terminal", () => {
  const colored = { TERM: "xterm", NO_COLOR: undefined, FORCE_COLOR: undefined, CI: undefined };

  test.skipIf(scriptReason !== "")(
    `prefixes have colours; none with NO_COLOR or --json${scriptReason}`,
    async () => {
      const path = script("colors.mjs", `console.log("text");`);
      const start = (
        args: string,
        env: NodeJS.ProcessEnv,
      ): Promise<{ lines: readonly string[] }> => {
        // The program `script` takes one command line.
        const command = `"$NODE" "$MAIN" launch -n 2 ${args} "$SCRIPT"`;
        const by = [
          "sh",
          "-c",
          `NODE="$1" MAIN="$2" SCRIPT="${path}" script -qec '${command}' /dev/null </dev/null`,
          "sh",
        ];
        return launch([], env, by).ended;
      };
      expect((await start("", colored)).lines).toEqual([
        "\x1b[33m[1] \x1b[39mtext\r",
        "\x1b[36m[0] \x1b[39mtext\r",
      ]);
      const plain = await start("", { ...colored, NO_COLOR: "1" });
      expect(plain.lines).toEqual(["[0] text\r", "[1] text\r"]);
      const json = await start("--json", colored);
      expect(json.lines.join("")).not.toContain("\x1b");
    },
  );
});

describe("wrong usage", () => {
  test.each([
    ["launch -n 2 --timeout soon x.mjs", /--timeout: found "soon", needs seconds from 0\.001 to/],
    ["launch -n 2 --timeout 0 x.mjs", /--timeout: found "0", needs seconds/],
    ["launch -n 2 --timeout 1.2.3 x.mjs", /--timeout: found "1\.2\.3"/],
    ["launch -n 2 --timeout -5 x.mjs", /--timeout: found "-5"/],
    ["launch -n 2 --timeout 2147484 x.mjs", /--timeout: found "2147484", needs .* to 2147483/],
    ["launch -n 2 --timeout= x.mjs", /--timeout: found ""/],
    ["launch -n 2 --json=yes x.mjs", /'--json' does not take an argument/],
    ["launch -n 2 --grace 90000 x.mjs", /--grace: found "90000", needs seconds from 0 to 86400/],
  ])("%s", async (line, message) => {
    const { status, out, err } = await cli(line);
    expect({ status, out }).toEqual({ status: 2, out: "" });
    expect(err).toMatch(message);
  });
});

describe("a script in TypeScript", () => {
  afterEach(() => vi.unstubAllEnvs());

  test.each(["typed.ts", "typed.mts", "typed.tsx"])(
    "%s is started where Node.js loads it, and otherwise refused with a hint",
    async (name) => {
      vi.stubEnv("NODE_OPTIONS", "");
      const path = script(name, "export default () => 1;");
      const { status, out, err } = await cli(`launch -n 1 ${path}`);
      if (name !== "typed.tsx" && (process.features as { typescript?: unknown }).typescript) {
        expect(status, err).toBe(0);
        return;
      }
      expect({ status, out }).toEqual({ status: 2, out: "" });
      expect(err).toContain(
        `${name}: its types need a loader\nhint: Node.js ${process.versions.node} does`,
      );
      expect(err).toContain('NODE_OPTIONS="--import tsx"');
    },
  );

  test("is started with a loader from the environment", async () => {
    const [hooks, loader] = [scratch("hooks.mjs"), scratch("loader.mjs")];
    writeFileSync(
      hooks,
      `import { readFile } from "node:fs/promises";
      export const load = async (url, context, next) => url.endsWith(".tsx")
        ? { format: "module", shortCircuit: true, source: await readFile(new URL(url), "utf8") }
        : next(url, context);`,
    );
    writeFileSync(
      loader,
      `import { register } from "node:module"; register("./hooks.mjs", import.meta.url);`,
    );
    vi.stubEnv("NODE_OPTIONS", `--import ${pathToFileURL(loader)}`);
    const { status, err } = await cli(`launch -n 1 ${script("loaded.tsx", "")}`);
    expect(status, err).toBe(0);
  });
});
