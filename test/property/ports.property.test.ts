/**
 * The ports of ranks in virtual time: each carries one message at a time, whatever programs do, and a message waits for
 * its two ranks and its two ports, and for nothing else.
 */
import fc from "fast-check";
import { createWorld } from "twinccl";
import { sim, Trace } from "twinccl/sim";
import { programs, runProgram } from "twinccl/testing";
import { expect, test } from "vitest";
import { holds } from "../support/seed.ts";

const latencyNs = 700;
/** One byte takes one nanosecond. */
const link = { latencyNs, gigabytesPerSecond: 1 };
/** Few different times, so that messages often fill a gap exactly. */
const hundreds = (max: number): fc.Arbitrary<number> => fc.nat({ max }).map((n) => 100 * n);

/** Port uses `[start, end]` by communicator, rank and direction. */
function portUses(text: string): Map<string, (readonly [number, number])[]> {
  const uses = new Map<string, (readonly [number, number])[]>();
  const line = /^(\d+) recv rank=(\d+) from=(\d+) comm=(\S+) .* sent=(\d+)\.\.(\d+) began=(\d+)$/gm;
  for (const [, done, to, from, comm, sendStart, sendEnd, began] of text.matchAll(line)) {
    const sides = [
      [`${comm} out of ${from}`, Number(sendStart), Number(sendEnd)],
      [`${comm} into ${to}`, Number(began), Number(done)],
    ] as const;
    for (const [port, start, end] of sides) {
      if (start === end) continue;
      const known = uses.get(port);
      if (known === undefined) uses.set(port, [[start, end]]);
      else known.push([start, end]);
    }
  }
  return uses;
}

/** No port is used twice at a time; touching is allowed. */
function assertApart(ports: ReturnType<typeof portUses>): void {
  for (const [port, uses] of ports) {
    uses.sort((a, b) => a[0] - b[0]);
    uses.forEach(([start], i) => {
      expect(start, port).toBeGreaterThanOrEqual(uses[i - 1]?.[1] ?? 0);
    });
  }
}

/** Messages among ranks that all post theirs as one group, some really later than others. */
interface Crowd {
  readonly size: number;
  readonly seed: number;
  readonly messages: readonly {
    readonly from: number;
    readonly by: number;
    readonly bytes: number;
  }[];
  readonly lateNs: readonly number[];
  readonly lateTurns: readonly number[];
}

const crowds: fc.Arbitrary<Crowd> = fc.record({
  size: fc.integer({ min: 2, max: 5 }),
  seed: fc.integer(),
  messages: fc.array(
    fc.record({ from: fc.nat({ max: 4 }), by: fc.nat({ max: 3 }), bytes: hundreds(4) }),
    {
      minLength: 1,
      maxLength: 12,
    },
  ),
  lateNs: fc.array(hundreds(12), { minLength: 5, maxLength: 5 }),
  lateTurns: fc.array(fc.nat({ max: 6 }), { minLength: 5, maxLength: 5 }),
});

async function crowdTrace({ size, seed, messages, lateNs, lateTurns }: Crowd): Promise<string> {
  const trace = new Trace();
  const world = await createWorld({ backend: sim({ seed, link, trace }), size });
  const running = world.run(async (comm) => {
    for (let turn = 0; turn < (lateTurns[comm.rank] as number); turn++) await undefined;
    comm.work(lateNs[comm.rank] as number, "late");
    await comm.group(() => {
      for (const { from, by, bytes } of messages) {
        const sender = from % size;
        const receiver = (sender + 1 + (by % (size - 1))) % size;
        const data = new Uint8Array(bytes);
        if (comm.rank === sender) void comm.send({ send: data, peer: receiver });
        if (comm.rank === receiver) void comm.recv({ recv: data, peer: sender });
      }
    });
    comm.work(0, "end");
  });
  await running.finally(() => world.close());
  return trace.toText();
}

/** True when something that long would have fitted between the uses of a port, from one time on and before another. */
function fits(
  uses: readonly (readonly [number, number])[],
  from: number,
  before: number,
  length: number,
): boolean {
  let free = from;
  for (const [start, end] of [...uses, [before + length, Infinity] as const].sort(
    (a, b) => a[0] - b[0],
  )) {
    if (free < before && free + length <= start) return true;
    free = Math.max(free, end);
  }
  return false;
}

test("messages wait only for contended ports, and ranks only for their own messages", async () => {
  await holds(
    crowds,
    async (crowd) => {
      const text = await crowdTrace(crowd);
      const uses = portUses(text);
      assertApart(uses);
      const line = /^(\d+) recv rank=(\d+) from=(\d+) .* sent=(\d+)\.\.(\d+) began=(\d+)$/gm;
      const found = [...text.matchAll(line)].map((match) => match.slice(1).map(Number));
      expect(found).toHaveLength(crowd.messages.length);
      const lastPs = crowd.lateNs.slice(0, crowd.size).map((ns) => 1000 * ns);
      for (const each of found) {
        const [done, to, from, sendStart, sendEnd, began] = each as [
          number,
          number,
          number,
          number,
          number,
          number,
        ];
        const length = sendEnd - sendStart;
        const ready = 1000 * Math.max(crowd.lateNs[from] as number, crowd.lateNs[to] as number);
        const arrival = sendStart + 1000 * latencyNs;
        expect(sendStart).toBeGreaterThanOrEqual(ready);
        expect(began).toBeGreaterThanOrEqual(arrival);
        expect(done - began).toBe(length);
        if (length > 0) {
          expect(fits(uses.get(`world out of ${from}`) ?? [], ready, sendStart, length)).toBe(
            false,
          );
          expect(fits(uses.get(`world into ${to}`) ?? [], arrival, began, length)).toBe(false);
        }
        lastPs[from] = Math.max(lastPs[from] as number, sendEnd);
        lastPs[to] = Math.max(lastPs[to] as number, done);
      }
      for (const [, time, rank] of text.matchAll(/^(\d+) work rank=(\d+) .* end$/gm)) {
        expect(Number(time)).toBe(lastPs[Number(rank)]);
      }
      expect(await crowdTrace(crowd)).toBe(text);
    },
    200,
  );
});

test("no port carries two messages at a time, in groups and replays of any calls", async () => {
  await holds(
    // With one split, no two communicators have the same name.
    programs({ payload: "bits", maxSplits: 1 }),
    async (program) => {
      const trace = new Trace();
      await runProgram(sim({ trace, link }), program);
      assertApart(portUses(trace.toText()));
    },
    200,
  );
});

test("the same seed gives the same trace, in groups, splits and replays", async () => {
  await holds(
    fc.record({ program: programs({ payload: "bits" }), seed: fc.integer() }),
    async ({ program, seed }) => {
      const [first, second] = [new Trace(), new Trace()];
      for (const trace of [first, second]) await runProgram(sim({ trace, seed }), program);
      expect(second.toText()).toBe(first.toText());
      expect(second.toChrome()).toEqual(first.toChrome());
    },
    100,
  );
});
