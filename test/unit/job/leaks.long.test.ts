/** Leftovers in a process after its job: nothing that keeps it alive, nothing open. */
import { spawn } from "node:child_process";
import { describe, expect, test } from "vitest";
import { fileRendezvous } from "../../../src/job/file-rendezvous.ts";
import { StoreServer } from "../../../src/job/server.ts";
import { freePort } from "../../support/free-port.ts";
import { closeAfter } from "../../support/opened.ts";
import { scratch, script } from "./launched.ts";
import { errorOf, place } from "./stores.ts";

/** Runs a script as one rank; resolves with what it printed and its exit status. */
async function run(path: string, port: number, secret: string): Promise<[string, number | null]> {
  const env = {
    ...process.env,
    ...{ TWINCCL_RANK: "0", TWINCCL_SIZE: "1", TWINCCL_LOCAL_RANK: "0", TWINCCL_LOCAL_SIZE: "1" },
    ...{ TWINCCL_JOB_ID: "test-job", TWINCCL_PORT: String(port), TWINCCL_SECRET: secret },
  };
  const child = spawn(process.execPath, [path], { env, stdio: ["ignore", "pipe", "inherit"] });
  closeAfter(async () => child.kill("SIGKILL"));
  let out = "";
  child.stdout.on("data", (chunk) => {
    out += chunk;
  });
  const status = await new Promise<number | null>((resolve) => child.once("close", resolve));
  return [out, status];
}

const sayOpen = `
  await pause(20);
  const open = process.getActiveResourcesInfo().filter((name) => /TCP|Timeout|Pipe.*Server/.test(name));
  console.log("open:", open.join(" "));`;

describe("a process ends by itself", () => {
  test("after leaving, with nothing open", async () => {
    const { server, secret } = await place(1);
    const path = script(
      "leaves.mjs",
      `process.env.TWINCCL_STORE = "launcher";
       const there = rendezvousFor(launcherEnvironment(process.env));
       const member = await there.join({ jobId, rank, size });
       await member.exchange("k", bytes("v"), { signal: new AbortController().signal });
       await member.get("never", { timeoutMs: 10 }).catch(() => undefined);
       await member.leave(); ${sayOpen}`,
    );
    expect(await run(path, server.port, secret)).toEqual(["open: \n", 0]);
  });

  test("without leaving, although its membership stands", async () => {
    const { server, secret } = await place(1);
    const path = script(
      "stays.mjs",
      `process.env.TWINCCL_STORE = "launcher";
       await rendezvousFor(launcherEnvironment(process.env)).join({ jobId, rank, size });
       console.log("in");`,
    );
    expect(await run(path, server.port, secret)).toEqual(["in\n", 0]);
  });

  test("although it would answer the questions of other ranks", async () => {
    const { server, secret } = await place(1);
    const path = script(
      "answers.mjs",
      `process.env.TWINCCL_STORE = "launcher";
       const there = rendezvousFor(launcherEnvironment(process.env));
       const member = await there.join({ jobId, rank, size });
       member.onQuestion(() => "words");
       await pause(50);
       // A wait that is not idle beside it still holds the process.
       await member.get("never", { timeoutMs: 200 }).catch(() => console.log("waited"));`,
    );
    const began = performance.now();
    expect(await run(path, server.port, secret)).toEqual(["waited\n", 0]);
    expect(performance.now() - began).toBeLessThan(10_000);
  });

  test.each(["leaves", "does not leave"])("when it hosted the store itself and %s", async (how) => {
    const path = script(
      "hosts.mjs",
      `const member = await join();
       ${how === "leaves" ? `await member.leave(); ${sayOpen}` : 'console.log("open: ");'}`,
    );
    expect(await run(path, await freePort(), "0123456789abcdef")).toEqual(["open: \n", 0]);
  });

  test("after a join that failed", async () => {
    const { server, secret } = await place(2);
    const path = script(
      "fails.mjs",
      `process.env.TWINCCL_STORE = "launcher";
       const there = rendezvousFor(launcherEnvironment(process.env));
       const error = await there.join({ jobId, rank: 0, size: 2, deadlineMs: 50 }).catch((e) => e);
       console.log(error.code); ${sayOpen}`,
    );
    const [out, status] = await run(path, server.port, secret);
    expect([out, status]).toEqual(["ERR_COMM_RENDEZVOUS\nopen: \n", 0]);
  });
});

test("no socket or timer of this process is left by joins, failures and closing", async () => {
  const before = process.getActiveResourcesInfo().filter((name) => name.startsWith("TCP"));
  const secret = "a secret of this test";
  const options = { jobId: "j", size: 2, hosted: false, secret };
  const server = await StoreServer.listen(options);
  const file = fileRendezvous({ path: scratch("leaks") });
  await errorOf(file.join({ jobId: "j", rank: 0, size: 2, deadlineMs: 60 }));
  await errorOf(file.join({ jobId: "j", rank: 1, size: 2, deadlineMs: 60 }));
  await server.close();
  await server.close();
  const open = (): string[] =>
    process.getActiveResourcesInfo().filter((name) => name.startsWith("TCP"));
  await expect.poll(open).toEqual(before);
});
