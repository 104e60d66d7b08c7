/** The calls and work of a trace as data, and a trace without messages. */
import { type Communicator, createWorld } from "twinccl";
import { type SimOptions, sim, Trace } from "twinccl/sim";
import { expect, test } from "vitest";

const link = { latencyNs: 1000, gigabytesPerSecond: 1 };

async function traced(
  trace: Trace,
  program: (comm: Communicator) => unknown,
  options = {},
): Promise<Trace> {
  const world = await createWorld({ backend: sim({ trace, phantom: true, ...options }), size: 2 });
  await world.run(program).finally(() => world.close());
  return trace;
}

async function everything(comm: Communicator): Promise<void> {
  const send = comm.alloc("float32", 1000);
  comm.work(5000 * comm.rank, "late");
  await comm.allReduce({ send, op: "sum" });
  const peer = 1 - comm.rank;
  await (comm.rank === 0
    ? comm.send({ send, peer })
    : comm.recv({ recv: comm.alloc("float32", 1000), peer }));
}

test("spans have every call and work with its times", async () => {
  const trace = await traced(new Trace(), everything, { link, algorithms: { allReduce: "ring" } });
  const spans = trace.spans().map(({ rank, name, startPs, endPs, call }) => {
    return [rank, name, startPs / 1000, endPs / 1000, call?.bytes, call?.predictedFor];
  });
  // Halves of 2000 bytes in two steps after the late rank; then all 4000 bytes.
  expect(spans).toEqual([
    [0, "late", 0, 0, undefined, undefined],
    [1, "late", 0, 5000, undefined, undefined],
    [0, "allReduce", 0, expect.any(Number), 4000, undefined],
    [1, "allReduce", 5000, expect.any(Number), 4000, undefined],
    [0, "send", expect.any(Number), expect.any(Number), 4000, undefined],
    [1, "recv", expect.any(Number), expect.any(Number), 4000, undefined],
  ]);
  const [, , reduced, , sent, received] = spans;
  expect(sent?.[2]).toBe(reduced?.[3]);
  expect(Number(received?.[3]) - Number(sent?.[3])).toBe(1000);
});

test("spans name the machine of their times, and the reason of an extrapolated one", async () => {
  const trace = await traced(new Trace(), async (comm) => {
    await comm.allReduce({ send: comm.alloc("float32", 1000), op: "sum" });
    await comm.barrier();
  });
  const [first, , third] = trace.spans().map(({ call }) => call);
  const machine = "8 x NVIDIA H200, NVSwitch, NCCL 2.28.9";
  expect(first).toMatchObject({ predictedFor: machine, extrapolated: undefined, ranks: 2 });
  expect(third).toMatchObject({ predictedFor: machine, extrapolated: expect.any(String) });
});

test("spans of messages name the machine of their times, on links none", async () => {
  const program = async (comm: Communicator): Promise<void> => {
    const [send, recv] = [comm.alloc("float32", 1000), comm.alloc("float32", 1000)];
    await comm.sendRecv({ send, recv, to: 1 - comm.rank, from: 1 - comm.rank });
  };
  const machines = async (options: SimOptions): Promise<unknown[]> => {
    const trace = await traced(new Trace(), program, options);
    return trace.spans().map(({ call }) => [call?.predictedFor, call?.extrapolated]);
  };
  const machine = "8 x NVIDIA H200, NVSwitch, NCCL 2.28.9";
  expect(await machines({})).toEqual(Array(4).fill([machine, "no sendRecv was measured"]));
  expect(await machines({ link })).toEqual(Array(4).fill([undefined, undefined]));
});

test("a failed call has a failed span", async () => {
  const trace = new Trace();
  const program = (comm: Communicator) =>
    comm.rank === 0 ? comm.barrier() : Promise.reject(new Error("gone"));
  await expect(traced(trace, program)).rejects.toThrow("gone");
  expect(trace.spans()).toEqual([
    expect.objectContaining({ name: "barrier", call: expect.objectContaining({ failed: true }) }),
  ]);
});

test("a trace without messages has the same spans, and no message of a collective", async () => {
  const [all, calls] = [new Trace(), new Trace({ messages: false })];
  for (const trace of [all, calls]) await traced(trace, everything);
  expect(calls.spans()).toEqual(all.spans());
  expect(all.messages().length).toBeGreaterThan(1);
  expect(calls.messages()).toHaveLength(1);
  const withoutMessages = (text: string): string => text.replace(/^\d+ recv [^\n]*\n/gm, "");
  expect(withoutMessages(calls.toText())).toBe(withoutMessages(all.toText()));
});

test("an unknown option of a trace is an error by name", () => {
  expect(() => new Trace({ message: false } as never)).toThrow("Trace: message: it is not known");
  expect(() => new Trace({ messages: 1 } as never)).toThrow(
    expect.objectContaining({ field: "messages" }),
  );
});

test("a picture without messages has labels, marks and a legend; one with messages has none", async () => {
  const program = async (comm: Communicator) => {
    comm.work(0, "step");
    comm.work(30_000, "forward 1");
    await comm.allReduce({ send: comm.alloc("float32", 2 ** 18), op: "sum" });
    comm.work(30_000, "backward 1");
  };
  const picture = (await traced(new Trace({ messages: false }), program)).toSvg("<title>");
  expect(picture).toContain("&lt;title&gt;");
  expect(picture.match(/class="mark"/g)).toHaveLength(2);
  expect(picture.match(/>(forward 1|backward 1|allReduce[^<]*)<\/text>/g)).toHaveLength(6);
  expect(picture.match(/y="30">(calls|forward|backward)</g)).toHaveLength(3);
  const unfit = "a\u0001b\u001b[0m\u0000\ufffe\ud800c\td";
  const replaced = (await traced(new Trace({ messages: false }), program)).toSvg(unfit);
  expect(replaced).toContain("<title>a\ufffdb\ufffd[0m\ufffd\ufffd\ufffdc\td</title>");
  const messages = (await traced(new Trace(), program)).toSvg();
  expect(messages).not.toMatch(/class="(mark|inside)"/);
});

test.each([
  { durationNs: 0, first: "0 µs", last: "0 µs" },
  { durationNs: 0.003, first: "0 µs", last: "0.000003 µs" },
  { durationNs: 400_000, first: "0 µs", last: "400 µs" },
  { durationNs: 1.2e11, first: "0 ms", last: "120000 ms" },
])("the axis of $durationNs ns ends within the picture", async ({ durationNs, first, last }) => {
  const program = (comm: Communicator) => comm.work(durationNs);
  const picture = (await traced(new Trace(), program)).toSvg();
  const [, width] = picture.match(/viewBox="0 0 (\d+) /) ?? [];
  const axis = [...picture.matchAll(/x="([^"]*)" y="[^"]*" text-anchor="middle">([^<]*)/g)];
  expect(axis[0]?.[2]).toBe(first);
  expect(axis.at(-1)?.[2]).toBe(last);
  // A character is at most seven pixels wide.
  expect(axis.filter(([, x, text = ""]) => Number(x) + 3.5 * text.length > Number(width))).toEqual(
    [],
  );
});

test("a call that takes no time ends after it begins", async () => {
  const trace = await traced(new Trace(), async (comm) => {
    const nothing = comm.alloc("float32", 0);
    for (let i = 0; i < 2; i++) await comm.allReduce({ send: nothing, op: "sum" });
    const aborted = comm.barrier({ signal: AbortSignal.abort() });
    await aborted.catch(() => undefined);
  });
  const lines = trace.toText().split("\n");
  const ofRank = lines
    .filter((line) => line.includes(" rank=1 "))
    .map((line) => {
      const [timePs, kind, , , call] = line.split(" ");
      return `${timePs} ${kind} ${call}`;
    });
  expect(ofRank).toEqual(["0 post call=0", "0 done call=0", "0 post call=1", "0 done call=1"]);
});
