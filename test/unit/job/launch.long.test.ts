/** `twinccl launch` with real processes: the ranks' view, the end of a job by failures and signals, no process left. */
import { dirname } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { cli } from "../cli/harness.ts";
import { isRunning, launch, script } from "./launched.ts";

const pidsOf = (lines: readonly string[]): number[] =>
  lines.flatMap((line) => [...line.matchAll(/pid (\d+)/g)].map((match) => Number(match[1])));

async function expectGone(pids: readonly number[]): Promise<void> {
  await expect.poll(() => pids.filter(isRunning), { timeout: 20_000 }).toEqual([]);
}

describe("a job", () => {
  test("meets at the launcher's store; lines bear their rank", async () => {
    const path = script(
      "meet.mjs",
      `const member = await join();
       const all = await member.exchange("k", bytes("from " + rank));
       console.log(all.map(text).join(", "));
       console.error("to stderr");
       await member.leave();`,
    );
    const { status, lines, err } = await launch(["-n", "3", path]).ended;
    expect({ status, lines }).toEqual({
      status: 0,
      lines: [0, 1, 2].map((rank) => `[${rank}] from 0, from 1, from 2`),
    });
    expect(err.split("\n").sort().slice(1)).toEqual([0, 1, 2].map((r) => `[${r}] to stderr`));
  });

  test("gets its variables and its own arguments, options among them", async () => {
    const path = script(
      "variables.mjs",
      `const { TWINCCL_SECRET, TWINCCL_PORT, TWINCCL_JOB_ID, ...env } = process.env;
       const names = ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "STORE", "ADDRESS"];
       console.log(names.map((name) => env["TWINCCL_" + name]).join(" "), env.NCCL_NVLS_ENABLE);
       console.log(/^[0-9a-f]{64}$/.test(TWINCCL_SECRET), JSON.stringify(process.argv.slice(2)));
       console.log(env.CUDA_VISIBLE_DEVICES, process.argv.join().includes(TWINCCL_SECRET));`,
    );
    const env = { CUDA_VISIBLE_DEVICES: "5", NCCL_NVLS_ENABLE: "1" };
    const { lines } = await launch(["-n", "1", path, "-n", "7", "--help", "--", "x"], env).ended;
    expect(lines).toEqual([
      "[0] 0 1 0 1 launcher 127.0.0.1 1",
      "[0] 5 false",
      '[0] true ["-n","7","--help","--","x"]',
    ]);
    // An unset variable stays unset: a rank could not tell a default from a setting of its user.
    const unset = await launch(["-n", "1", path], { NCCL_NVLS_ENABLE: undefined }).ended;
    expect(unset.lines[0]).toBe("[0] 0 1 0 1 launcher 127.0.0.1 undefined");
  });

  test("takes mpirun's way to say how many", async () => {
    const path = script("np.mjs", "console.log(rank, size, process.argv.slice(2).join());");
    const { status, lines } = await launch(["-np", "2", path, "-np", "3"]).ended;
    expect({ status, lines }).toEqual({ status: 0, lines: ["[0] 0 2 -np,3", "[1] 1 2 -np,3"] });
    const { status: wrong, err } = await cli("launch -np");
    expect(wrong).toBe(2);
    expect(err).toContain("--ranks");
  });

  test.each([
    ["4", "2", ["0: 0 of 2", "0: 1 of 2", "1: 0 of 2", "1: 1 of 2"]],
    ["5", "2", ["0: 0 of 3", "0: 1 of 3", "0: 2 of 3", "1: 0 of 2", "1: 1 of 2"]],
    ["3", "3", ["0: 0 of 1", "1: 0 of 1", "2: 0 of 1"]],
    ["2", "1", ["none: 0 of 2", "none: 1 of 2"]],
  ])("of %s ranks on %s imitated hosts gives each its own", async (ranks, hosts, expectedLines) => {
    const path = script(
      "hosts.mjs",
      `const { NCCL_HOSTID = "host none", TWINCCL_LOCAL_RANK, TWINCCL_LOCAL_SIZE } = process.env;
       const host = /host *([^ ]+)$/.exec(NCCL_HOSTID)[1];
       console.log(host + ": " + TWINCCL_LOCAL_RANK + " of " + TWINCCL_LOCAL_SIZE);`,
    );
    const env = { NCCL_HOSTID: undefined };
    const { lines, err } = await launch(["-n", ranks, "--hosts", hosts, path], env).ended;
    expect(err).toBe("");
    expect(lines).toEqual(expectedLines.map((line, rank) => `[${rank}] ${line}`));
  });

  test("may write long lines, lines without an end, and letters cut in two", async () => {
    const path = script(
      "lines.mjs",
      `process.stdout.write("x".repeat(70000) + "\\n");
       const letters = Buffer.from("grüße");
       process.stdout.write(letters.subarray(0, 3));
       await pause(50);
       process.stdout.write(letters.subarray(3));`,
    );
    const { lines } = await launch(["-n", "1", path]).ended;
    expect(lines).toEqual(["[0] grüße", `[0] ${"x".repeat(70_000)}`]);
  });

  test("may write any bytes, which arrive unchanged", async () => {
    const path = script(
      "bytes.mjs",
      `process.stdout.write(Buffer.from([0xff, 0x00, 0xc3, 0x0d, 0x0a, 0x80, 0x0a, 0xe2, 0x82]));`,
    );
    const asHex = ["sh", "-c", '"$@" | od -An -v -w64 -tx1', "sh"];
    const { lines } = await launch(["-n", "1", path], {}, asHex).ended;
    const prefix = "5b 30 5d 20";
    expect(lines).toEqual([` ${prefix} ff 00 c3 0d 0a ${prefix} 80 0a ${prefix} e2 82 0a`]);
  });

  test("may write lines of any length, which are cut at 1,048,576 letters", async () => {
    const most = 2 ** 20;
    const path = script(
      "long.mjs",
      `process.stdout.write("x".repeat(${most}) + "\\n" + "y".repeat(${most + 1}) + "\\n");
       // A letter of two halves is not cut in two.
       process.stdout.write("z".repeat(${most - 1}) + "😀".repeat(2) + "z".repeat(${2 * most}));`,
    );
    const { lines, err } = await launch(["-n", "1", path]).ended;
    expect(err).toBe("");
    const needed = [
      ...["x".repeat(most), "y".repeat(most), "y"],
      ...["z".repeat(most - 1), `😀😀${"z".repeat(most - 4)}`, "z".repeat(most), "zzzz"],
    ];
    const shown = (line: string): string => `${line.length} ${line.slice(0, 8)} ${line.slice(-4)}`;
    // The lines are given sorted.
    expect(lines.map(shown)).toEqual(
      needed
        .map((line) => `[0] ${line}`)
        .sort()
        .map(shown),
    );
  });

  test("writes more than a pipe holds, and nothing is lost", async () => {
    const path = script("much.mjs", `for (let i = 0; i < 20000; i++) console.log("line", i);`);
    const { lines } = await launch(["-n", "2", path]).ended;
    expect(new Set(lines).size).toBe(40_000);
  });

  test("runs a script with a name that begins with a dash, and Node parses none of its arguments", async () => {
    const path = script("-dash.mjs", "console.log(process.execArgv, process.argv.slice(2));");
    const inFolder = ["sh", "-c", `cd "${dirname(path)}" && exec "$@"`, "sh"];
    const { lines } = await launch(["-n", "1", "--", "-dash.mjs", "--", "x"], {}, inFolder).ended;
    expect(lines).toEqual(["[0] [] [ '--', 'x' ]"]);
  });

  test("ends when its stderr has no reader any more", async () => {
    const path = script("ticks.mjs", `setInterval(() => console.error("tick"), 50);`);
    const job = launch(["-n", "2", path]);
    setTimeout(() => job.process.stderr?.destroy(), 1_000);
    expect((await job.ended).status).toBe(141);
  });

  test("loses no output that is read late", async () => {
    const text = "x".repeat(99);
    const path = script("late.mjs", `process.stdout.write("${text}\\n".repeat(2000) + "end\\n");`);
    // Longer than the time for output that a rank's own offspring holds open.
    const slow = ["sh", "-c", '"$@" | (sleep 3; cat)', "sh"];
    const { lines } = await launch(["-n", "1", path], {}, slow).ended;
    expect({ lines: lines.length, first: lines[0] }).toEqual({ lines: 2001, first: "[0] end" });
  });

  test("with unread output ends at the second signal, and the launcher at the third", async () => {
    const path = script(
      "unread.mjs",
      `process.on("SIGTERM", () => { console.error("stopping"); process.exit(3); });
       setInterval(() => undefined, 1000);
       process.stdout.write(("x".repeat(999) + "\\n").repeat(2000));
       console.error("up");`,
    );
    const job = launch(["-n", "2", path]);
    job.process.stdout?.removeAllListeners("data").pause();
    await job.printed("[1] up");
    job.process.kill("SIGTERM");
    await job.printed("[1] stopping");
    job.process.kill("SIGINT");
    await job.printed("SIGTERM was handed on");
    job.process.kill("SIGTERM");
    expect((await job.ended).signal).toBe("SIGTERM");
  });

  test("does not wait for descendants that keep writing to its output", async () => {
    const path = script(
      "offspring.mjs",
      `import { spawn } from "node:child_process";
       const loop = "let n = 0; setInterval(() => { console.log('on'); n++ > 100 && process.exit(); }, 100)";
       spawn(process.execPath, ["-e", loop], { detached: true, stdio: ["ignore", "inherit", "ignore"] }).unref();
       console.log("end");`,
    );
    const { status, lines } = await launch(["-n", "1", path]).ended;
    expect(status).toBe(0);
    expect(lines).toContain("[0] end");
    expect(lines.length).toBeLessThan(90);
  });
});

describe("a failure", () => {
  const failing = `
    console.log("pid", process.pid);
    await join();
    if (rank === 1) { await pause(50); process.exit(7); }
    setInterval(() => undefined, 1000);`;

  test("stops the others, and its status is the launcher's", async () => {
    const { status, err, lines } = await launch(["-n", "3", script("fails.mjs", failing)]).ended;
    expect(status).toBe(7);
    expect(err).toMatch(
      /^twinccl launch: rank 1 failed first after \d+\.\d s: exit status 7; ranks 0, 2 stopped$/m,
    );
    await expectGone(pidsOf(lines));
  });

  test("by a signal counts 128 and the signal", async () => {
    const path = script(
      "killed.mjs",
      `await join();
       if (rank === 0) process.kill(process.pid, "SIGKILL");
       setInterval(() => undefined, 1000);`,
    );
    const { status, err } = await launch(["-n", "2", path]).ended;
    expect(status).toBe(137);
    expect(err).toMatch(/rank 0 failed first after \d+\.\d s: SIGKILL; rank 1 stopped/);
  });

  test("of processes without file handles left is reported by rank, and stops the others", async () => {
    const waits = script("waits.mjs", `console.log("pid " + process.pid); await pause(60_000);`);
    // So many begin at once that whatever else runs would have to wait.
    const limited = 'ulimit -n 80; exec nice -n 10 "$@"';
    const job = launch(["-n", "40", "--grace", "1", waits], {}, ["sh", "-c", limited, "sh"]);
    const { status, err, lines } = await job.ended;
    expect(status).toBe(127);
    expect(err).toMatch(/rank \d+ failed first after .* s: it could not start: .*EMFILE/);
    await expectGone(pidsOf(lines));
  });

  test("of a script that does not even start is reported by rank", async () => {
    const path = script("throws.mjs", `throw new Error("not today");`);
    const { status, err } = await launch(["-n", "1", path]).ended;
    expect(status).toBe(1);
    expect(err).toMatch(/^\[0\] Error: not today$/m);
  });

  test("names a rank that ended well before it joined", async () => {
    const path = script(
      "ended.mjs",
      `if (rank === 1) process.exit(0);
       const { code, message, joined, missing } = await join().catch((error) => error);
       console.log(code, joined, missing, message.match(/rank 1 .*/)?.[0]);`,
    );
    const { status, lines } = await launch(["-n", "2", path]).ended;
    expect({ status, lines }).toEqual({
      status: 0,
      lines: ["[0] ERR_COMM_RENDEZVOUS [ 0 ] [ 1 ] rank 1 ended before it joined: exit status 0"],
    });
  });

  test("names a rank that ended well before it joined again", async () => {
    const path = script(
      "left.mjs",
      `await (await join()).leave();
       if (rank === 1) process.exit(0);
       await pause(500);
       const { code, message } = await join().catch((error) => error);
       console.log(code, message.match(/rank 1 .*/)?.[0]);`,
    );
    const { status, lines } = await launch(["-n", "2", path]).ended;
    expect({ status, lines }).toEqual({
      status: 0,
      lines: ["[0] ERR_COMM_RENDEZVOUS rank 1 ended before it joined again: exit status 0"],
    });
  });

  test("lets survivors continue with --on-failure keep", async () => {
    const path = script(
      "keeps.mjs",
      `const member = await join();
       if (rank === 1) process.exit(3);
       const error = await member.exchange("k", bytes("")).catch((error) => error);
       await pause(100);
       console.log("went on without", error.ranks, member.lost.map((peer) => peer.rank));
       await member.leave();`,
    );
    const { status, lines, err } = await launch(["-n", "3", "--on-failure", "keep", path]).ended;
    expect({ status, lines }).toEqual({
      status: 3,
      lines: [0, 2].map((survivor) => `[${survivor}] went on without [ 1 ] [ 1 ]`),
    });
    expect(err).toMatch(/rank 1 failed first after .*: exit status 3; ranks 0, 2 ended well/);
  });

  test("of a rank that ignores SIGTERM waits only for the grace time", async () => {
    const path = script(
      "stubborn.mjs",
      `process.on("SIGTERM", () => console.log("no"));
       await join();
       if (rank === 1) process.exit(1);
       setInterval(() => undefined, 1000);`,
    );
    const { status, lines } = await launch(["-n", "2", "--grace", "1", path]).ended;
    expect({ status, lines }).toEqual({ status: 1, lines: ["[0] no"] });
  });
});

describe("no process remains", () => {
  const lasting = `
    import { spawn } from "node:child_process";
    const helper = spawn("sleep", ["1000"], { stdio: "ignore" });
    console.log("pid", process.pid, "pid", helper.pid);
    await join();
    console.log("ready");
    setInterval(() => undefined, 1000);`;

  test.each([
    ["SIGINT", 130],
    ["SIGTERM", 143],
    ["SIGHUP", 129],
  ] as const)("after %s, which is forwarded", async (signal, wanted) => {
    const run = launch(["-n", "2", script("lasts.mjs", lasting)]);
    await run.printed("[0] ready");
    await run.printed("[1] ready");
    run.process.kill(signal);
    const { status, err, lines } = await run.ended;
    expect(status).toBe(wanted);
    expect(err).toContain(`twinccl launch: ${signal} was handed on; rank`);
    const pids = pidsOf(lines);
    expect(pids).toHaveLength(4);
    await expectGone(pids);
  });

  test("when the launcher itself is killed", async () => {
    const run = launch(["-n", "2", "--grace", "1", script("orphans.mjs", lasting)]);
    await run.printed("[0] ready");
    await run.printed("[1] ready");
    run.process.kill("SIGKILL");
    const { lines, signal } = await run.ended;
    expect(signal).toBe("SIGKILL");
    const pids = pidsOf(lines);
    expect(pids).toHaveLength(4);
    await expectGone(pids);
  });

  test("when the output has no reader any more", async () => {
    const run = launch([
      "-n",
      "1",
      script("chatty.mjs", `${lasting} setInterval(() => console.log("x"), 5);`),
    ]);
    let text = "";
    run.process.stdout?.on("data", (chunk: string) => {
      text += chunk;
    });
    await run.printed("[0] ready");
    run.process.stdout?.destroy();
    const { err } = await run.ended;
    expect(err).toContain("the output has no reader any more");
    await expectGone(pidsOf([text]));
  });
});

describe("wrong usage", () => {
  let path = "";
  beforeAll(() => {
    path = script("never.mjs", `console.log("ran");`);
  });

  test.each([
    ["launch", /say how many processes to start/],
    ["launch -n 2", /name a script to start/],
    ["launch -n 0 x.mjs", /--ranks: found "0"/],
    ["launch -n 70000 x.mjs", /--ranks: found "70000", needs a whole number in 1\.\.65536/],
    ["launch -n 2 no-such.mjs", /there is no file no-such\.mjs/],
    ["launch -n 2 --fast x.mjs", /unknown option '--fast'/],
    [
      "launch -n 2 --on-failure maybe x.mjs",
      /--on-failure: found "maybe", needs one of kill, keep/,
    ],
    ["launch -n 2 --grace soon x.mjs", /--grace: found "soon"/],
    ["launch -n 2 --hosts 3 x.mjs", /--hosts: found "3", needs a whole number in 1\.\.2/],
  ])("%s", async (line, message) => {
    const { status, err } = await cli(line);
    expect(status).toBe(2);
    expect(err).toMatch(message);
  });

  test.each(["0,1", "", "0,-1,1,2", "GPU-a, GPU-b"])(
    "more ranks than CUDA_VISIBLE_DEVICES=%s lists, with one GPU each",
    async (list) => {
      const env = { CUDA_VISIBLE_DEVICES: list };
      const { status, err } = await launch(["-n", "3", "--one-gpu-each", path], env).ended;
      expect(status).toBe(2);
      expect(err).toContain(`--one-gpu-each: 3 ranks, but CUDA_VISIBLE_DEVICES="${list}" lists`);
    },
  );

  test("as many ranks as devices are accepted on each host, and more are without --one-gpu-each", async () => {
    const env = { CUDA_VISIBLE_DEVICES: "1,0" };
    const hosts = ["--hosts", "2"];
    const more = await launch(["-n", "4", ...hosts, "--one-gpu-each", path], env).ended;
    expect(more.status).toBe(0);
    expect((await launch(["-n", "2", "--one-gpu-each", path], env).ended).status).toBe(0);
    expect((await launch(["-n", "3", path], env).ended).status).toBe(0);
  });

  test("help before the script is the launcher's", async () => {
    const { status, out } = await cli("launch --help");
    expect(status).toBe(0);
    expect(out).toContain("Usage: twinccl launch -n N");
  });
});
