/** The file of a rendezvous as it is read and written: its required owner, and its open fields. */
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { expect, onTestFinished, test, vi } from "vitest";
import {
  createRecord,
  type FileRecord,
  format,
  readRecord,
  removeRecord,
  thisProcess,
} from "../../../src/job/file-record.ts";
import { scratch } from "./launched.ts";

const record: FileRecord = {
  ...{ format, jobId: "job", nonce: "n", host: "127.0.0.1", port: 4711, secret: "s" },
  creator: thisProcess(),
};

/** A path at which a record stands. */
function written(name: string, of: unknown = record): string {
  const path = scratch(name);
  writeFileSync(path, `${JSON.stringify(of)}\n`, { mode: 0o600 });
  return path;
}

test("a created file is read, and created once", () => {
  const path = scratch("created");
  expect(readRecord(path)).toEqual({ kind: "absent" });
  expect(createRecord(path, record)).toBe(true);
  expect(createRecord(path, { ...record, nonce: "another" })).toBe(false);
  expect(readRecord(path)).toEqual({ kind: "record", record });
});

test.each([0o640, 0o620, 0o610, 0o604, 0o602, 0o601])(
  "a file that others may open is not trusted: mode %o",
  (mode) => {
    const path = written("open-to-others");
    chmodSync(path, mode);
    onTestFinished(() => rmSync(path));
    expect(readRecord(path)).toEqual({ kind: "refused", reason: "can be read by other users" });
  },
);

test("a file of another user is not trusted", () => {
  const path = written("of-another");
  const users = process as Required<Pick<NodeJS.Process, "getuid">>;
  const own = users.getuid();
  const user = vi.spyOn(users, "getuid").mockReturnValue(own + 1);
  onTestFinished(() => user.mockRestore());
  expect(readRecord(path)).toEqual({ kind: "refused", reason: `belongs to user ${own}` });
});

test("a pipe, which would block until it has a writer, is refused at once", () => {
  const path = scratch("pipe");
  expect(spawnSync("sh", ["-c", 'mkfifo -m 600 "$0"', path]).status).toBe(0);
  const module = new URL("../../../dist/job/file-record.js", import.meta.url);
  const program = `
    import { readRecord } from ${JSON.stringify(module.href)};
    console.log(readRecord(${JSON.stringify(path)}).reason);`;
  const { stdout, signal } = spawnSync(process.execPath, ["--input-type=module", "-e", program], {
    timeout: 20_000,
    encoding: "utf8",
  });
  expect([stdout, signal]).toEqual(["is no file\n", null]);
});

test.each(["host", "boot", "namespace", "pid", "started", "atMs"])(
  "a record with an invalid %s is not complete",
  (name) => {
    const creator = { ...record.creator, [name]: null };
    const path = written("incomplete", { ...record, creator });
    expect(readRecord(path)).toEqual({ kind: "unfinished", isOld: false });
  },
);

test.each([0, 1])(
  "a file that no more than %i blocks may be written to is not left behind",
  (blocks) => {
    const path = scratch(`no-room-${blocks}`);
    const module = new URL("../../../dist/job/file-record.js", import.meta.url);
    const long = { ...record, jobId: "j".repeat(3_000) };
    const program = `
    import { createRecord } from ${JSON.stringify(module.href)};
    try {
      console.log(createRecord(${JSON.stringify(path)}, ${JSON.stringify(long)}));
    } catch (error) {
      console.log(error.code);
    }`;
    const command = 'ulimit -f "$0"; exec "$@"';
    const node = [process.execPath, "--input-type=module", "-e", program];
    const { stdout } = spawnSync("sh", ["-c", command, String(blocks), ...node], {
      timeout: 20_000,
      encoding: "utf8",
    });
    expect([stdout, existsSync(path)]).toEqual(["EFBIG\n", false]);
  },
);

test("no file stays open, whatever its content", () => {
  const path = written("read-often");
  const broken = written("read-often-too", { ...record, port: 0 });
  const folder = scratch("a-folder");
  mkdirSync(folder);
  const open = (): number => readdirSync("/proc/self/fd").length;
  const before = open();
  for (let i = 0; i < 20; i++) {
    for (const each of [path, broken, folder, scratch("none")]) readRecord(each);
    const fresh = scratch(`fresh-${i}`);
    createRecord(fresh, record);
    createRecord(fresh, record);
    removeRecord(fresh, () => true);
  }
  expect(open()).toBeLessThan(before + 20);
});
