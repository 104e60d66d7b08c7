/** Values that another process of the job gives, in no form of this version: an error of every rank that names it. */
import type { CommError } from "twinccl";
import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { MessageBlocks } from "../../src/backends/tcp/message-blocks.ts";
import { Peers } from "../../src/backends/tcp/peers.ts";
import type { Membership } from "../../src/job/rendezvous.ts";
import { TcpJob } from "../support/tcp-jobs.ts";

afterEach(() => vi.restoreAllMocks());

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

describe("the address of a rank", () => {
  const key = Buffer.alloc(32).toString("base64");
  const address = (fields: object) =>
    JSON.stringify({ kind: "address", host: "127.0.0.1", port: 4711, key, tls: false, ...fields });

  /** The error of rank 0 where rank 1 gives that value. */
  async function refusal(value: Uint8Array): Promise<CommError> {
    const membership = {
      ...{ rank: 0, size: 2, jobId: "job" },
      exchange: async (_: string, own: Uint8Array) => [own, value],
    } as unknown as Membership;
    const wait = { timeoutMs: 1000, signal: new AbortController().signal };
    const opening = Peers.open(
      membership,
      { host: "127.0.0.1", tls: false },
      new MessageBlocks(),
      wait,
    );
    return opening.then(
      (peers) => {
        peers.destroy();
        throw new Error(`rank 0 took ${value}`);
      },
      (error) => error,
    );
  }

  test.each([
    ["no JSON", utf8("{"), undefined],
    ["no UTF-8", Uint8Array.of(0x7b, 0xff), undefined],
    ["null", utf8("null"), undefined],
    ["no text as host", utf8(address({ host: 7 })), "host"],
    ["a port beyond the last one", utf8(address({ port: 65_536 })), "port"],
    ["a short key", utf8(address({ key: "AAAA" })), "key"],
    ["no key", utf8(address({ key: undefined })), "key"],
    ["no word on TLS", utf8(address({ tls: undefined })), "tls"],
  ])("that is %s is refused by name", async (_, value, field) => {
    expect(await refusal(value)).toMatchObject({
      code: "ERR_COMM_BACKEND",
      ...{ rank: 0, size: 2, comm: "job", ranks: [1], field: field ?? "address" },
      message: expect.stringContaining("connect: rank 1 gives no address of this version"),
      hint: expect.stringContaining("the same version of twinccl"),
    });
  });
});

describe("the digest of a call", () => {
  /** The errors of the ranks for a call that rank 1 describes with that text; without one as it is. */
  async function errors(text?: string): Promise<CommError[]> {
    const job = await TcpJob.open(2, { compareCalls: "always" });
    onTestFinished(() => job.close().catch(() => undefined));
    for (const member of job.members) {
      const exchange = member.exchange.bind(member);
      vi.spyOn(member, "exchange").mockImplementation((key, value, options) => {
        const isChanged = text !== undefined && member.rank === 1 && key.startsWith("call ");
        return exchange(key, isChanged ? utf8(text) : value, options);
      });
    }
    return (await job.outcomes((comm) => comm.barrier())) as CommError[];
  }

  const digest = (fields: object) =>
    JSON.stringify({
      ...{ call: { call: "barrier" }, signature: [["collective", "barrier"]] },
      ...{ lengths: [null], windows: [] },
      ...fields,
    });

  test.each([
    ["no JSON", "{"],
    ["null", "null"],
    ["a list", "[]"],
    ["without a call", digest({ call: undefined })],
    ["with a number as call", digest({ call: { call: 1 } })],
    ["with an object as place", digest({ call: { call: "barrier", place: {} } })],
    ["with a text as signature", digest({ signature: "barrier" })],
    ["with a field without a value", digest({ signature: ["collective"] })],
    ["with an object as value", digest({ signature: [["collective", {}]] })],
    ["without lengths", digest({ lengths: undefined })],
    ["with lengths of no call", digest({ lengths: [1] })],
    ["with texts as counts", digest({ lengths: [{ collective: "gather", sendCounts: ["1"] }] })],
    ["without windows", digest({ windows: undefined })],
  ])("that is %s is a mismatch", async (_, text) => {
    const found = await errors(text);
    for (const [rank, error] of found.entries()) {
      expect(error).toMatchObject({
        code: "ERR_COMM_MISMATCH",
        ...{
          rank,
          size: 2,
          comm: "world",
          collective: "barrier",
          call: 0,
          ranks: [1],
          field: "form",
        },
        hint: expect.stringContaining("the same version of twinccl on every rank"),
      });
    }
  });

  test("in the form of this version is compared", async () => {
    expect(await errors()).toEqual([undefined, undefined]);
  });
});

describe("the open calls of a rank", () => {
  const report = (call: object, comms: object = {}) =>
    JSON.stringify({ groups: [{ calls: [{ ...call }] }], comms });
  const call = { comm: "world", collective: "barrier", call: 0 };

  test.each([
    ["no JSON", "{"],
    ["without groups", JSON.stringify({ comms: {} })],
    ["with a message that is no list", report({ ...call, message: 7 })],
    ["with a communicator without ranks", report(call, { world: { next: 0 } })],
    ["with a rank that is no number", report(call, { world: { ranks: ["0"], next: 0 } })],
  ])("that are %s do not hide an inversion of others", async (_, text) => {
    const job = await TcpJob.open(3, { compareCalls: "always" });
    onTestFinished(() => job.close().catch(() => undefined));
    for (const member of job.members) {
      const ask = member.ask.bind(member);
      vi.spyOn(member, "ask").mockImplementation((rank, question, options) =>
        rank === 2 ? Promise.resolve(text) : ask(rank, question, options),
      );
    }
    const found = await job.each(async (comm, rank) => {
      const [one, other] = [await comm.split({ color: 0 }), await comm.split({ color: 0 })];
      await one.barrier();
      await other.barrier();
      if (rank === 2) return undefined;
      const [first, second] = rank === 0 ? [one, other] : [other, one];
      const timeoutMs = 10_000;
      const calls = [first.barrier({ timeoutMs }), second.barrier({ timeoutMs })];
      const outcomes = await Promise.allSettled(calls);
      return outcomes.map((outcome) => outcome.status === "rejected" && outcome.reason.code);
    });
    const codes = ["ERR_COMM_ORDER", "ERR_COMM_ORDER"];
    expect(found).toEqual([codes, codes, undefined]);
  });
});
