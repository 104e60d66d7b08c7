/** Credits, limits and memory of messages. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Endpoint, Flow } from "../../../../src/backends/tcp/flows.ts";
import { MessageBlocks } from "../../../../src/backends/tcp/message-blocks.ts";
import { headerBytes, readHeader, writeHeader } from "../../../../src/backends/tcp/wire.ts";
import { holds } from "../../../support/seed.ts";

const id = { sequence: 4, lane: 1, round: 2 };
const nothing = (): void => undefined;

test("headers keep every field", async () => {
  const uint = (bits: number) => fc.integer({ min: 0, max: 2 ** bits - 1 });
  const headers = fc.record({
    ...{ kind: uint(16), comm: uint(48), bytes: uint(32), total: uint(48) },
    ...{ sequence: uint(32), lane: uint(16), round: uint(32) },
  });
  const law = (header: Parameters<typeof writeHeader>[1]): void => {
    const frame = Buffer.alloc(headerBytes);
    writeHeader(frame, header);
    expect(readHeader(frame)).toEqual(header);
  };
  await holds(headers, law, 500);
});

describe("blocks", () => {
  test("have the length given, and room for every dtype", () => {
    const blocks = new MessageBlocks();
    for (const length of [0, 1, 511, 512, 513, 100_000]) {
      const { memory, bytes } = blocks.take(length);
      expect(bytes.byteLength).toBe(length);
      expect(bytes.byteOffset).toBe(headerBytes);
      expect(memory.byteLength % 8).toBe(0);
    }
  });

  test("are used again, and few are kept", () => {
    const blocks = new MessageBlocks();
    const first = blocks.take(1000);
    blocks.give(first);
    expect(blocks.take(900).memory).toBe(first.memory);
    const many = Array.from({ length: 20 }, () => blocks.take(2 ** 20));
    for (const each of many) blocks.give(each);
    const again = Array.from({ length: 20 }, () => blocks.take(2 ** 20).memory);
    const kept = new Set(many.map(({ memory }) => memory));
    expect(again.filter((memory) => kept.has(memory)).length).toBe(8);
  });
});

describe("a flow", () => {
  test("gives its messages in order, and calls a waiter once", () => {
    const blocks = new MessageBlocks();
    const flow = new Flow(0);
    let calls = 0;
    expect(flow.take(() => calls++)).toBeUndefined();
    const arrivals = [1, 2].map((total) => ({ block: blocks.take(8), total }));
    for (const arrival of arrivals) flow.arrived(arrival);
    expect(calls).toBe(1);
    expect(flow.take(nothing)).toBe(arrivals[0]);
    expect(flow.take(nothing)).toBe(arrivals[1]);
    expect(flow.take(nothing)).toBeUndefined();
  });

  test("has no more credits than it was given", () => {
    const flow = new Flow(2);
    let calls = 0;
    const taken = Array.from({ length: 3 }, () => flow.takeCredit(() => calls++));
    expect(taken).toEqual([true, true, false]);
    flow.addCredit();
    flow.addCredit();
    expect(calls).toBe(1);
    expect(flow.takeCredit(nothing)).toBe(true);
  });

  test("that is dropped gives its messages back, and wakes nothing", () => {
    const blocks = new MessageBlocks();
    const flow = new Flow(0);
    const block = blocks.take(64);
    flow.take(() => expect.fail("it was dropped"));
    flow.drop(blocks);
    flow.arrived({ block, total: 0 });
    flow.drop(blocks);
    expect(blocks.take(64).memory).toBe(block.memory);
  });
});

describe("a sender", () => {
  test("waits while much is open, and always gets room once its peer has ended the calls", async () => {
    const calls = fc.array(fc.oneof(fc.nat({ max: 4000 }), fc.nat({ max: 3_000_000 })), {
      minLength: 1,
      maxLength: 200,
    });
    await holds(
      calls,
      (all) => {
        const [sender, receiver] = [new Endpoint(), new Endpoint()];
        const begun: number[] = [];
        let openBytes = 0;
        for (const bytes of all) {
          if (!sender.begin(nothing)) {
            expect(begun.length).toBeGreaterThan(0);
            // The receiver ends what has begun, in order.
            for (const ended of begun.splice(0)) {
              openBytes -= ended;
              const report = receiver.end(ended);
              if (report !== undefined) sender.peerEnded(report.calls, report.bytes);
            }
            expect(sender.begin(nothing), "room after all calls have ended").toBe(true);
          }
          // One call may be as long as it likes: its flows have credits.
          expect(openBytes).toBeLessThan(2 * 2 ** 20);
          expect(begun.length).toBeLessThan(32);
          begun.push(bytes);
          openBytes += bytes;
          sender.sent(bytes);
        }
      },
      400,
    );
  });

  test("that waits is called once there is room", () => {
    const sender = new Endpoint();
    while (sender.begin(nothing));
    let calls = 0;
    expect(sender.begin(() => calls++)).toBe(false);
    sender.peerEnded(16, 0);
    sender.peerEnded(1, 0);
    expect(calls).toBe(1);
  });
});

test("an endpoint forgets the flows of one call and of one direction", () => {
  const blocks = new MessageBlocks();
  const endpoint = new Endpoint();
  const incoming = endpoint.incoming(id);
  const outgoing = endpoint.outgoing(id, 1);
  const other = endpoint.incoming({ ...id, sequence: 5 });
  endpoint.forgetFlow(id.sequence, "recv", blocks);
  expect(endpoint.incoming(id)).not.toBe(incoming);
  expect(endpoint.outgoing(id, 1)).toBe(outgoing);
  endpoint.forget(id.sequence, blocks);
  expect(endpoint.outgoing(id, 1)).not.toBe(outgoing);
  expect(endpoint.incoming({ ...id, sequence: 5 })).toBe(other);
  // A late credit of a call that is over is nothing.
  endpoint.credit({ ...id, sequence: 77 });
});
