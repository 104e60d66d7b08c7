/** The rendezvous at a file: what is believed, what is refused, what is stale. */
import { spawn, spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { createConnection } from "node:net";
import { hostname } from "node:os";
import { describe, expect, test } from "vitest";
import { createRecord, removeRecord } from "../../../src/job/file-record.ts";
import { fileRendezvous } from "../../../src/job/file-rendezvous.ts";
import type { Membership } from "../../../src/job/rendezvous.ts";
import { closeAfter } from "../../support/opened.ts";
import { quickTime } from "../../support/quick-time.ts";
import { isRunning, scratch } from "./launched.ts";
import { bytes, errorOf, text } from "./stores.ts";

quickTime();

let count = 0;
const freshPath = (): string => {
  count += 1;
  return scratch(`file-${count}`);
};

interface Options {
  readonly jobId?: string;
  readonly size?: number;
  readonly deadlineMs?: number;
}

function join(
  path: string,
  rank: number,
  { jobId = "job", size = 2, deadlineMs = 5_000 }: Options = {},
): Promise<Membership> {
  const joined = fileRendezvous({ path }).join({ jobId, rank, size, deadlineMs });
  closeAfter(() => joined.then((member) => member.leave()).catch(() => undefined));
  return joined;
}

/** The file that is left after rank 0 of a run was killed. */
async function leftBehind(path: string, jobId: string): Promise<void> {
  const index = new URL("../../../dist/job/file-rendezvous.js", import.meta.url).href;
  const program = `
    import { fileRendezvous } from ${JSON.stringify(index)};
    const path = ${JSON.stringify(path)};
    await fileRendezvous({ path }).join({ jobId: ${JSON.stringify(jobId)}, rank: 0, size: 1 });
    process.kill(process.pid, "SIGKILL");`;
  const { signal, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", program]);
  expect(signal, String(stderr)).toBe("SIGKILL");
  expect(statSync(path).isFile()).toBe(true);
}

const recordAt = (path: string) => JSON.parse(readFileSync(path, "utf8"));
const write = (path: string, content: unknown): void =>
  writeFileSync(path, typeof content === "string" ? content : `${JSON.stringify(content)}\n`, {
    mode: 0o600,
  });

describe("meeting at a file", () => {
  test("brings ranks together in any order, and leaves no file behind", async () => {
    const path = freshPath();
    const joining = [2, 1, 0].map((rank) => join(path, rank, { size: 3 }));
    const members = await Promise.all(joining);
    const values = await Promise.all(
      members.map((each) => each.exchange("k", bytes(`${each.rank}`))),
    );
    expect(values[0]?.map(text)).toEqual(["0", "1", "2"]);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    await Promise.all(members.map((member) => member.leave()));
    expect(statSync(path, { throwIfNoEntry: false })).toBeUndefined();
  });

  test("works for one rank", async () => {
    const member = await join(freshPath(), 0, { size: 1 });
    expect(member.size).toBe(1);
  });

  test("in a folder keeps jobs apart", async () => {
    const folder = freshPath();
    mkdirSync(folder);
    const ids = ["a/b", "a_b", "../../../up"];
    const members = await Promise.all(
      ids.flatMap((jobId) => [0, 1].map((rank) => join(folder, rank, { jobId }))),
    );
    expect(members.map(({ jobId }) => jobId)).toEqual(ids.flatMap((id) => [id, id]));
    expect(readdirSync(folder)).toHaveLength(3);
  });

  test("in the own folder removes the files of jobs that were killed, and no other", async () => {
    const folder = freshPath();
    mkdirSync(folder, { mode: 0o700 });
    const at = (name: string) => `${folder}/${name}.rendezvous`;
    await leftBehind(at("killed"), "killed");
    const running = await join(at("running"), 0, { jobId: "running", size: 1 });
    write(at("elsewhere"), {
      ...recordAt(at("killed")),
      creator: { ...recordAt(at("killed")).creator, host: "another" },
    });
    write(`${folder}/other`, "of something else");
    const rendezvous = fileRendezvous({ path: at("new"), isFolderOwn: true });
    const member = await rendezvous.join({ jobId: "new", rank: 0, size: 1 });
    closeAfter(() => member.leave());
    const names = ["elsewhere", "new", "running"].map((name) => `${name}.rendezvous`);
    expect(readdirSync(folder).sort()).toEqual([...names, "other"].sort());
    await running.leave();
  });

  test("in an own folder that cannot be listed fails by what the rank needs, not by the list", () => {
    const module = new URL("../../../dist/job/file-rendezvous.js", import.meta.url).href;
    const path = `${freshPath()}/job.rendezvous`;
    const program = `
      import { openSync } from "node:fs";
      import { fileRendezvous } from ${JSON.stringify(module)};
      const rendezvous = fileRendezvous({ path: ${JSON.stringify(path)}, isFolderOwn: true });
      const join = () => rendezvous.join({ jobId: "job", rank: 0, size: 1 });
      await (await join()).leave();
      try {
        for (;;) openSync("/dev/null");
      } catch {}
      await join().catch(({ code }) => console.log(code));`;
    const command = 'ulimit -n 64; exec "$0" --input-type=module -e "$1"';
    const { stdout } = spawnSync("sh", ["-c", command, process.execPath, program], {
      timeout: 20_000,
      encoding: "utf8",
    });
    expect(stdout).toBe("ERR_COMM_RENDEZVOUS\n");
  });

  test("says at the deadline that rank 0 is missing", async () => {
    const path = freshPath();
    const error = await errorOf(join(path, 1, { deadlineMs: 100 }));
    expect(error).toMatchObject({ code: "ERR_COMM_RENDEZVOUS", missing: [0], address: path });
    expect(error.message).toContain("rank 0 was not found within 100 ms: there is no such file");
  });

  test("says at the deadline which other rank is missing, and removes the file", async () => {
    const path = freshPath();
    const error = await errorOf(join(path, 0, { deadlineMs: 200 }));
    expect(error).toMatchObject({ code: "ERR_COMM_RENDEZVOUS", joined: [0], missing: [1] });
    expect(statSync(path, { throwIfNoEntry: false })).toBeUndefined();
  });

  test("refuses a second rank, 0 or another, by name; the first stays", async () => {
    const path = freshPath();
    const [zero, one] = await Promise.all([join(path, 0), join(path, 1)]);
    const again = await errorOf(join(path, 0));
    expect(again).toMatchObject({ code: "ERR_COMM_RENDEZVOUS", ranks: [0] });
    expect(again.message).toContain(`rank 0 is taken by process ${process.pid} on ${hostname()}`);
    const other = await errorOf(join(path, 1));
    expect(other.message).toContain(`rank 1 is taken by process ${process.pid} on`);
    await zero.set("k", bytes("v"));
    expect(text(await one.get("k"))).toBe("v");
  });

  test.each([
    ["behind a file", () => `${process.execPath}/x`],
    ["of too long a name", () => `${freshPath()}${"x".repeat(300)}`],
  ])("at a path %s is refused by name, on either rank", async (_, pathOf) => {
    const path = pathOf();
    for (const rank of [0, 1]) {
      const error = await errorOf(join(path, rank, { deadlineMs: 200 }));
      expect(error.message).toMatch(/^(rendezvous at |rank 0 was not found|.*the file )/);
      expect(error.code).toMatch(/^ERR_COMM_(ARG|RENDEZVOUS)$/);
    }
  });

  test("in a folder that does not exist is refused by name", async () => {
    const error = await errorOf(join(scratch("no/such/folder"), 0));
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "path" });
    expect(error.message).toContain("ENOENT");
  });
});

describe("distrusted files", () => {
  test.each(["symbolic link", "readable by others", "a device", "too large"])(
    "%s",
    async (kind) => {
      const path = kind === "a device" ? "/dev/null" : freshPath();
      let reason = "";
      if (kind === "symbolic link") {
        write(`${path}-target`, "x");
        symlinkSync(`${path}-target`, path);
        reason = "the file is a symbolic link";
      } else if (kind === "readable by others") {
        write(path, "{}\n");
        chmodSync(path, 0o640);
        reason = "the file can be read by other users";
      } else if (kind === "a device") {
        reason = "the file is no file";
      } else {
        write(path, "x".repeat(5_000));
        reason = "the file is too large for a rendezvous";
      }
      for (const rank of [0, 1]) {
        const error = await errorOf(join(path, rank));
        expect(error).toMatchObject({ code: "ERR_COMM_RENDEZVOUS" });
        expect(error.message).toContain(reason);
      }
      expect(statSync(path, { throwIfNoEntry: false })).toBeDefined();
    },
  );

  test("a dangling link, which would be created where it points", async () => {
    const path = freshPath();
    symlinkSync(`${path}-elsewhere`, path);
    expect((await errorOf(join(path, 0))).message).toContain("is a symbolic link");
    expect(statSync(`${path}-elsewhere`, { throwIfNoEntry: false })).toBeUndefined();
  });

  test.each([
    "a diary\n",
    "{}\n",
    '{"format":"something else"}\n',
    "-----BEGIN OPENSSH PRIVATE KEY-----\n",
  ])("a file of something else, which stays as it is: %j", async (content) => {
    const path = freshPath();
    write(path, content);
    const before = new Date(Date.now() - 60_000);
    utimesSync(path, before, before);
    for (const rank of [0, 1]) {
      const error = await errorOf(join(path, rank, { size: 2, deadlineMs: 300 }));
      expect(error).toMatchObject({ code: "ERR_COMM_RENDEZVOUS" });
      expect(error.message).toContain("the file holds something else than a rendezvous");
    }
    expect(readFileSync(path, "utf8")).toBe(content);
  });

  test("a record with an invalid field, by either rank", async () => {
    const path = freshPath();
    await leftBehind(path, "job");
    const record = recordAt(path);
    const wrong = [
      ...["jobId", "nonce", "secret", "host", "port", "creator"].map((name) => ({ [name]: null })),
      ...[0, 65_536, "7000"].map((port) => ({ port })),
      { creator: { ...record.creator, pid: "1" } },
    ];
    for (const fields of wrong) {
      write(path, { ...record, ...fields });
      const follows = await errorOf(join(path, 1, { deadlineMs: 50 }));
      expect(follows.message, JSON.stringify(fields)).toContain("the file is not complete");
      const hosts = await errorOf(join(path, 0, { deadlineMs: 50 }));
      expect(hosts.message, JSON.stringify(fields)).toContain(
        "another process is writing the file",
      );
    }
  });

  test("a file that is removed before it is complete is named as absent", async () => {
    const path = freshPath();
    write(path, "");
    const failing = errorOf(join(path, 1, { deadlineMs: 500 }));
    await new Promise((resolve) => setTimeout(resolve, 100));
    rmSync(path);
    expect((await failing).message).toContain("not found within 500 ms: there is no such file");
  });

  test("a file with a second name is waited out", async () => {
    const other = freshPath();
    await leftBehind(other, "job");
    linkSync(other, `${other}-second`);
    expect((await errorOf(join(other, 1, { deadlineMs: 80 }))).message).toContain("not complete");
  });
});

describe("a file that an earlier run left behind", () => {
  test.each(["job", "another job"])("of %s is replaced by rank 0", async (jobId) => {
    const path = freshPath();
    await leftBehind(path, jobId);
    const early = join(path, 1);
    await new Promise((resolve) => setTimeout(resolve, 50));
    const members = await Promise.all([early, join(path, 0)]);
    expect(members.map(({ size }) => size)).toEqual([2, 2]);
  });

  test("is named to a rank when rank 0 never comes", async () => {
    const path = freshPath();
    await leftBehind(path, "job");
    const error = await errorOf(join(path, 1, { deadlineMs: 80 }));
    expect(error.message).toMatch(/the file is stale: its process \d+ on .* has ended/);
    await leftBehind(`${path}b`, "yesterday");
    const other = await errorOf(join(`${path}b`, 1, { deadlineMs: 80 }));
    expect(other.message).toContain('the file belongs to the job "yesterday"');
  });

  test("is stale too when its number is in use again, or its machine restarted", async () => {
    const path = freshPath();
    await leftBehind(path, "job");
    const record = recordAt(path);
    const stranger = spawn("sleep", ["100"]);
    closeAfter(async () => stranger.kill());
    const pid = stranger.pid as number;
    expect(isRunning(pid)).toBe(true);
    for (const creator of [
      { ...record.creator, pid },
      { ...record.creator, pid, boot: "an earlier one", atMs: 0 },
    ]) {
      write(path, { ...record, creator });
      const member = await join(path, 0, { size: 1 });
      await member.leave();
    }
  });

  test("of unknown state is refused by name, and stays", async () => {
    const path = freshPath();
    await leftBehind(path, "job");
    const record = recordAt(path);
    for (const creator of [
      { ...record.creator, host: "another-host" },
      { ...record.creator, namespace: "pid:[1]" },
      { ...record.creator, boot: "unknown", atMs: Date.now() },
    ]) {
      write(path, { ...record, creator });
      const error = await errorOf(join(path, 0));
      expect(error).toMatchObject({ code: "ERR_COMM_RENDEZVOUS", ranks: [0] });
      expect(error.hint).toContain("if that job is over, remove the file");
      expect(recordAt(path).creator).toEqual(creator);
    }
    write(path, { ...record, creator: { ...record.creator, host: "another-host" } });
    const reader = await errorOf(join(path, 1, { deadlineMs: 80 }));
    expect(reader.message).toContain(
      "listens on 127.0.0.1 of another-host alone; give every rank an address of that machine which all reach",
    );
  });

  test("of a job that still runs is refused to another job", async () => {
    const path = freshPath();
    await join(path, 0, { size: 1, jobId: "first" });
    const error = await errorOf(join(path, 0, { size: 1, jobId: "second" }));
    expect(error.message).toMatch(/the file belongs to the job "first" of process \d+/);
  });

  test("half written is waited for, and replaced once it is old", async () => {
    const path = freshPath();
    write(path, '{"format":');
    const error = await errorOf(join(path, 0, { deadlineMs: 100 }));
    expect(error.message).toContain("another process is writing the file");
    const before = new Date(Date.now() - 60_000);
    utimesSync(path, before, before);
    const member = await join(path, 0, { size: 1 });
    expect(member.size).toBe(1);
  });

  test("stays when it is not the one that was judged, and no other process takes its place", async () => {
    const path = freshPath();
    await leftBehind(path, "job");
    const before = readFileSync(path, "utf8");
    const third = () => createRecord(path, { ...recordAt(path), jobId: "third" });
    let isCreated: boolean | undefined;
    removeRecord(path, () => {
      isCreated = third();
      return false;
    });
    expect(isCreated).toBe(false);
    expect(readFileSync(path, "utf8")).toBe(before);
    // Nor does another one take it away meanwhile.
    removeRecord(path, () => removeRecord(path, () => true));
    expect(readFileSync(path, "utf8")).toBe(before);
    expect(removeRecord(path, (at) => at.kind === "record" && at.record.jobId === "job")).toBe(
      true,
    );
    expect(statSync(path, { throwIfNoEntry: false })).toBeUndefined();
    expect(removeRecord(path, () => true)).toBe(true);
    expect(existsSync(`${path}.lock`)).toBe(false);
  });

  test("waits for a process that is about to remove it, unless that one was killed meanwhile", async () => {
    const path = freshPath();
    await leftBehind(path, "job");
    write(`${path}.lock`, "");
    const error = await errorOf(join(path, 0, { size: 1, deadlineMs: 100 }));
    expect(error.message).toContain("another process is writing the file");
    const before = new Date(Date.now() - 60_000);
    utimesSync(`${path}.lock`, before, before);
    expect((await join(path, 0, { size: 1 })).size).toBe(1);
    expect(existsSync(`${path}.lock`)).toBe(false);
  });

  test("keeps no store open when it cannot be removed", async () => {
    const path = freshPath();
    const member = await join(path, 0, { size: 1 });
    const { port } = recordAt(path);
    rmSync(path);
    mkdirSync(path);
    await member.leave();
    const refused = new Promise((resolve) => {
      createConnection({ host: "127.0.0.1", port }).on("error", resolve).on("connect", resolve);
    });
    expect(await refused).toMatchObject({ code: "ECONNREFUSED" });
  });

  test("is replaced by one of many processes at once", async () => {
    const path = freshPath();
    await leftBehind(path, "old");
    const ids = Array.from({ length: 6 }, (_, at) => `job-${at}`);
    const settled = await Promise.allSettled(ids.map((jobId) => join(path, 0, { size: 1, jobId })));
    expect(settled.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    const leftovers = readdirSync(scratch(".")).filter((name) =>
      name.includes(`${path.split("/").at(-1)}.`),
    );
    expect(leftovers).toEqual([]);
  });
});
