/** Ranks that give up at a file: by their signals, while they wait for another process, and with what they host. */
import { readFileSync, utimesSync, writeFileSync } from "node:fs";
import { createConnection } from "node:net";
import { expect, test, vi } from "vitest";
import * as files from "../../../src/job/file-record.ts";
import { thisProcess } from "../../../src/job/file-record.ts";
import { fileRendezvous } from "../../../src/job/file-rendezvous.ts";
import { closeAfter } from "../../support/opened.ts";
import { within } from "../../support/planted.ts";
import { scratch } from "./launched.ts";
import { errorOf } from "./stores.ts";

/** The act of another process just before this one takes a file away. */
let meanwhile: (() => void) | undefined;

vi.hoisted(() => vi.resetModules());

vi.mock("../../../src/job/file-record.ts", async (original) => {
  const real = await original<typeof files>();
  const removeRecord: typeof real.removeRecord = (path, isJudged) => {
    meanwhile?.();
    meanwhile = undefined;
    return real.removeRecord(path, isJudged);
  };
  return { ...real, removeRecord };
});

const request = { jobId: "job", size: 2 } as const;

const record: files.FileRecord = {
  ...{ format: files.format, jobId: "job", nonce: "n", host: "127.0.0.1", port: 9, secret: "s" },
  creator: thisProcess(),
};
/** A record of a process that has ended. */
const stale = { ...record, nonce: "stale", creator: { ...record.creator, started: "0" } };

/** Writes a file, as of that time. */
function write(path: string, text: string, at = new Date()): void {
  writeFileSync(path, text, { mode: 0o600 });
  utimesSync(path, at, at);
}
const line = (of: files.FileRecord): string => `${JSON.stringify(of)}\n`;

test.each([
  ["rank 1, while there is none", 1, undefined],
  ["rank 0, while somebody else is writing it", 0, '{"format":'],
])("%s stops at its signal", async (_, rank, content) => {
  const path = scratch(`signal-${rank}`);
  if (content !== undefined) write(path, content, new Date(Date.now() + 3_600_000));
  const reason = new Error("enough");
  const giveUp = new AbortController();
  const joining = fileRendezvous({ path }).join({ ...request, rank, signal: giveUp.signal });
  setTimeout(() => giveUp.abort(reason), 50);
  const error = await within(15_000, errorOf(joining));
  expect(error).toMatchObject({ code: "ERR_COMM_ABORTED", cause: reason, rank });
});

test("rank 0 closes the store that it hosts, and removes its file", async () => {
  const path = scratch("closes");
  const giveUp = new AbortController();
  const joining = fileRendezvous({ path }).join({ ...request, rank: 0, signal: giveUp.signal });
  const failed = errorOf(joining);
  const isThere = (): boolean => files.readRecord(path).kind === "record";
  await expect.poll(isThere).toBe(true);
  const { port } = JSON.parse(readFileSync(path, "utf8"));
  giveUp.abort();
  expect(await failed).toMatchObject({ code: "ERR_COMM_ABORTED" });
  expect(isThere()).toBe(false);
  const connecting = new Promise((resolve) => {
    const socket = createConnection({ host: "127.0.0.1", port });
    closeAfter(async () => socket.destroy());
    socket.on("error", resolve).on("connect", () => resolve("somebody listens"));
  });
  expect(await connecting).toMatchObject({ code: "ECONNREFUSED" });
});

/** Leftovers of a process that ended during its write, or after it. */
const left = { "half a record": '{"format":', "a record": line(stale) };

test.each(Object.entries(left))(
  "rank 0 does not remove a file that replaced %s that was left there",
  async (_, content) => {
    const path = scratch("replaced");
    const giving = { ...request, rank: 0, deadlineMs: 300 };
    for (const [next, message] of [
      [line(record), `rank 0 is taken by process ${process.pid}`],
      ['{"form', "another process is writing the file"],
    ] as const) {
      write(path, content, new Date(Date.now() - 60_000));
      meanwhile = () => write(path, next);
      const error = await errorOf(fileRendezvous({ path }).join(giving));
      expect(error.message).toContain(message);
      expect(readFileSync(path, "utf8")).toBe(next);
    }
  },
);
