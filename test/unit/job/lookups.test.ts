/** Name servers that do not answer: joins end at their deadline, and by their signal. */
import { expect, test, vi } from "vitest";
import { fileRendezvous } from "../../../src/job/file-rendezvous.ts";
import { tcpRendezvous } from "../../../src/job/tcp-rendezvous.ts";
import { within } from "../../support/planted.ts";
import { errorOf } from "./stores.ts";

vi.hoisted(() => vi.resetModules());

vi.mock("node:dns/promises", async (original) => {
  const dns = await original<typeof import("node:dns/promises")>();
  const lookup = (host: string) =>
    host === "node0.invalid" ? new Promise(() => undefined) : dns.lookup(host);
  return { ...dns, lookup };
});

const address = "node0.invalid";
const path = `/tmp/twinccl-lookups-${process.pid}`;

test.each([
  ["a rank", () => tcpRendezvous({ address, port: 9, host: "other" }), /no store was reached/],
  ["the host of a store", () => tcpRendezvous({ address, port: 9 }), /cannot listen: .* name in/],
  ["the host of a file", () => fileRendezvous({ path, address }), /cannot listen: .* name in/],
])("a join of %s ends in time", async (_, rendezvous, text) => {
  const join = { jobId: "j", rank: 0, size: 1 };
  const late = await within(5_000, errorOf(rendezvous().join({ ...join, deadlineMs: 50 })));
  expect(late.code).toBe("ERR_COMM_RENDEZVOUS");
  expect(late.message).toMatch(text);
  const signal = AbortSignal.timeout(50);
  const ended = await within(5_000, errorOf(rendezvous().join({ ...join, signal })));
  expect(ended).toMatchObject({ code: "ERR_COMM_ABORTED", collective: "join" });
});

test("a signal that fires between two attempts ends the join", async () => {
  const { tryConnect } = await import("../../../src/job/tcp-rendezvous.ts");
  const target = { host: "127.0.0.1", port: 9, secret: "" };
  const outcome = await within(2_000, tryConnect(target, 60_000, AbortSignal.abort()));
  expect(outcome).toMatchObject({ reason: "given up", final: false });
});
