/** The messages of a trace as data, and what the steps they reach make of them. */
import { createWorld } from "twinccl";
import {
  buildProgram,
  catalogue,
  execute,
  type ValueId,
  type ValueTable,
} from "twinccl/algorithms";
import { sim, Trace, type TracedMessage } from "twinccl/sim";
import { expect, test } from "vitest";

const link = { latencyNs: 1000, gigabytesPerSecond: 1 };

async function traced(size: number, count: number): Promise<Trace> {
  const trace = new Trace();
  const backend = sim({ trace, link, algorithms: { allReduce: "ring" } });
  const world = await createWorld({ backend, size, name: "job" });
  await world.run((comm) => comm.allReduce({ send: new Float32Array(count), op: "sum" }));
  await world.close();
  return trace;
}

const line = (m: TracedMessage): string =>
  `${m.recvEnd} recv rank=${m.to} from=${m.from} comm=${m.comm} call=${m.call} channel=${m.channel} ` +
  `elements=${m.elements} sent=${m.sendStart}..${m.sendEnd} began=${m.recvStart}`;

test("messages are the lines of the text", async () => {
  const trace = await traced(4, 10);
  const lines = trace.toText().split("\n");
  const received = lines.filter((each) => each.includes(" recv "));
  expect(received).toHaveLength(24);
  expect(trace.messages().map(line)).toEqual(received);
  trace.clear();
  expect(trace.messages()).toEqual([]);
});

test("a message of a measured machine is received from its call on, once it leaves", async () => {
  const trace = new Trace();
  const world = await createWorld({ backend: sim({ trace, phantom: true }), size: 3 });
  await world.run(async (comm) => {
    const buffer = comm.alloc("uint8", 2 ** 22);
    if (comm.rank === 0) {
      await comm.group(() => {
        for (const peer of [1, 2]) comm.send({ send: buffer, peer });
      });
    } else await comm.recv({ recv: buffer, peer: 0 });
    if (comm.rank === 2) comm.work(1_000_000);
    if (comm.rank === 1) await comm.send({ send: buffer, peer: 2 });
    if (comm.rank === 2) await comm.recv({ recv: buffer, peer: 1 });
  });
  await world.close();
  const messages = trace.messages();
  expect(messages).toHaveLength(3);
  for (const { to, call, sendStart, recvStart, recvEnd } of messages) {
    const span = trace.spans().find(({ name, rank, call: facts }) => {
      return name === "recv" && rank === to && facts?.number === call;
    });
    expect(recvStart).toBeGreaterThanOrEqual(Math.max(sendStart, span?.startPs ?? Number.NaN));
    expect(recvEnd).toBeGreaterThan(recvStart);
  }
});

test("a message has its number among those of the same two ranks, and that of the call at either end", async () => {
  const trace = new Trace();
  const world = await createWorld({ backend: sim({ trace, link }), size: 3 });
  const calls: number[][] = [[], []];
  await world.run(async (comm) => {
    if (comm.rank === 2) return comm.send({ send: new Int8Array(1), peer: 1 });
    if (comm.rank === 1) await comm.recv({ recv: new Int8Array(1), peer: 2 });
    for (const sender of [0, 1, 0]) {
      const [array, peer] = [new Int8Array(1), 1 - comm.rank];
      const op =
        sender === comm.rank ? comm.send({ send: array, peer }) : comm.recv({ recv: array, peer });
      await op;
      calls[comm.rank]?.push(op.call);
    }
  });
  await world.close();
  expect(calls).toEqual([
    [0, 1, 2],
    [1, 2, 3],
  ]);
  const facts = trace.messages().map(({ from, to, call, sendCall, message }) => {
    return { from, to, call, sendCall, message };
  });
  expect(facts).toEqual([
    { from: 2, to: 1, call: 0, sendCall: 0, message: 0 },
    { from: 0, to: 1, call: 1, sendCall: 0, message: 0 },
    { from: 1, to: 0, call: 1, sendCall: 2, message: 0 },
    { from: 0, to: 1, call: 3, sendCall: 2, message: 1 },
  ]);
  const lines = trace.toText().match(/recv rank=.* message=\d+ /g);
  expect(lines).toEqual([
    "recv rank=1 from=2 comm=world call=0 sendCall=0 message=0 ",
    "recv rank=1 from=0 comm=world call=1 sendCall=0 message=0 ",
    "recv rank=0 from=1 comm=world call=1 sendCall=2 message=0 ",
    "recv rank=1 from=0 comm=world call=3 sendCall=2 message=1 ",
  ]);
  const ends = trace
    .toChrome()
    .traceEvents.filter(({ ph, name }) => ph === "X" && name === "send 0→1");
  expect(ends.map(({ pid, args }) => [pid, args?.["call"], args?.["message"]])).toEqual([
    [0, 0, 0],
    [1, 1, 0],
    [0, 2, 1],
    [1, 3, 1],
  ]);
});

test("messages without a receiver are not counted between two ranks", async () => {
  const trace = new Trace();
  const world = await createWorld({ backend: sim({ trace, link }), size: 2 });
  await world.run(async (comm) => {
    const controller = new AbortController();
    const { signal } = controller;
    if (comm.rank === 0) {
      const taken = comm.send({ send: new Int8Array(1), peer: 1, signal });
      controller.abort("enough");
      await expect(taken).rejects.toMatchObject({ code: "ERR_COMM_ABORTED" });
    }
    await comm.barrier();
    if (comm.rank === 0) await comm.send({ send: new Int8Array(1), peer: 1 });
    else await comm.recv({ recv: new Int8Array(1), peer: 0 });
  });
  await world.close();
  const sent = trace.messages().filter(({ message }) => message !== undefined);
  expect(sent).toMatchObject([{ call: 0, sendCall: 1, message: 0 }]);
});

/** Ranks in the order in which their contributions were folded: of a ring, each into the partial before. */
function folded(values: ValueTable, id: ValueId): number[] {
  const value = values.describe(id);
  if (value.kind === "leaf") return [value.rank];
  if (value.kind !== "fold") return folded(values, value.of);
  const [a, b] = [folded(values, value.left), folded(values, value.right)];
  return a.length >= b.length && !values.isLeaf(value.left) ? [...a, ...b] : [...b, ...a];
}

test("a ring step has the partial of the ranks before it and its own", async () => {
  const size = 4;
  const {
    values,
    stepValues: made,
    received,
  } = execute(buildProgram("allReduce", catalogue.allReduce.ring, size, -1), false);
  const seen = (await traced(size, 4))
    .messages()
    .filter(({ to }) => to === 0)
    .map(({ step }) => [...made(step)].map((id) => folded(values, id)));
  // What arrives is the same without rank 0, until it is complete.
  const arrived = (await traced(size, 4))
    .messages()
    .filter(({ to }) => to === 0)
    .map(({ step }) => [...received(step)].map((id) => folded(values, id)));
  expect(arrived.slice(0, 3)).toEqual([[[3]], [[2, 3]], [[1, 2, 3]]]);
  expect(arrived.slice(3)).toEqual(seen.slice(3));
  // The paper's ring: rank 0 folds chunks that began at 3, 2 and 1, then hands on complete ones.
  expect(seen).toEqual([
    [[3, 0]],
    [[2, 3, 0]],
    [[1, 2, 3, 0]],
    [[0, 1, 2, 3]],
    [[3, 0, 1, 2]],
    [[2, 3, 0, 1]],
  ]);
});
