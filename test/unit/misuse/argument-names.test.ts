/** Arguments of another call: refused, with the names that this call takes and the calls that take this argument. */
import { type Communicator, createWorld, InvalidArgumentError } from "twinccl";
import { sim } from "twinccl/sim";
import { expect, test } from "vitest";

// biome-ignore lint/suspicious/noExplicitAny: wrong names are the point
type Wrong = any;

const size = 2;
const four = (): Float32Array => new Float32Array(4);
const moved = () => ({ send: four(), recv: four() });
const reduced = () => ({ send: four(), recv: new Float32Array(2), op: "sum" });

/** A call, its wrong argument, the names it takes in the order of the message, and the hint. */
const calls: readonly [string, string, () => object, string, string | undefined][] = [
  [
    "allToAll",
    "sendCounts",
    () => ({ ...moved(), sendCounts: [2, 2] }),
    "send, recv, signal, timeoutMs",
    "allToAllv takes sendCounts",
  ],
  [
    "allReduce",
    "root",
    () => ({ send: four(), op: "sum", root: 0 }),
    "send, recv, op, signal, timeoutMs",
    "reduce takes root",
  ],
  [
    "allReduce",
    "sendCounts",
    () => ({ send: four(), op: "sum", sendCounts: [2, 2] }),
    "send, recv, op, signal, timeoutMs",
    undefined,
  ],
  [
    "broadcast",
    "op",
    () => ({ recv: four(), op: "sum", root: 0 }),
    "send, recv, root, signal, timeoutMs",
    undefined,
  ],
  [
    "reduceScatter",
    "recvCounts",
    () => ({ ...reduced(), recvCounts: [2, 2] }),
    "send, recv, op, signal, timeoutMs",
    "reduceScatterv takes sendCounts",
  ],
  [
    "reduceScatter",
    "sendCounts",
    () => ({ ...reduced(), sendCounts: [2, 2] }),
    "send, recv, op, signal, timeoutMs",
    "reduceScatterv takes sendCounts",
  ],
  [
    "reduceScatterv",
    "recvCounts",
    () => ({ ...reduced(), recvCounts: [2, 2] }),
    "sendCounts, send, recv, op, signal, timeoutMs",
    "write sendCounts",
  ],
  [
    "allGather",
    "recvCounts",
    () => ({ send: new Float32Array(2), recv: four(), recvCounts: [2, 2] }),
    "send, recv, signal, timeoutMs",
    "allGatherv takes recvCounts",
  ],
  [
    "allGatherv",
    "recvCount",
    () => ({ send: new Float32Array(2), recv: four(), recvCount: [2, 2] }),
    "recvCounts, send, recv, recvOffsets, signal, timeoutMs",
    "write recvCounts",
  ],
  ["barrier", "send", () => ({ send: four() }), "signal, timeoutMs", undefined],
  ["barrier", "timeout", () => ({ timeout: 3 }), "timeoutMs, signal", "write timeoutMs"],
  [
    "send",
    "to",
    () => ({ send: four(), to: 1 }),
    "peer, send, signal, timeoutMs",
    "write peer; sendRecv takes to",
  ],
  [
    "recv",
    "from",
    () => ({ recv: four(), from: 1 }),
    "peer, recv, signal, timeoutMs",
    "write peer; sendRecv takes from",
  ],
  ["send", "dst", () => ({ send: four(), dst: 1 }), "peer, send, signal, timeoutMs", "write peer"],
  [
    "sendRecv",
    "peer",
    () => ({ ...moved(), peer: 1 }),
    "to, from, send, recv, signal, timeoutMs",
    "write to, from",
  ],
  [
    "broadcast",
    "src",
    () => ({ recv: four(), src: 0 }),
    "root, send, recv, signal, timeoutMs",
    "write root",
  ],
  [
    "split",
    "colour",
    () => ({ colour: 1 }),
    "color, key, stream, signal, timeoutMs",
    "write color",
  ],
];

async function onEveryRank(program: (comm: Communicator) => Promise<void>): Promise<void> {
  const world = await createWorld({ backend: sim(), size });
  await world.run(program);
  await world.close();
}

test.each(calls)("%s refuses %s", (name, field, args, names, hint) =>
  onEveryRank(async (comm) => {
    const error = await (comm as Wrong)[name](args()).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(InvalidArgumentError);
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field, collective: name, hint });
    const [headline] = error.message.split("\n");
    expect(headline).toBe(`${name}: ${field}: it is not known here, needs one of ${names}`);
    // The communicator is in step.
    await comm.barrier();
    expect(comm.stats().calls).toEqual({ barrier: 1 });
  }),
);

test.each([
  ["an argument that was undefined", { recv: undefined }],
  ["an option", { timeoutMs: 60_000 }],
])("also in place of %s in the call before", (_, extra) =>
  onEveryRank(async (comm) => {
    const send = comm.alloc("float32", 4);
    await comm.allReduce({ send, op: "sum", ...extra });
    const wrong = { send, op: "sum", sendCounts: [1] } as const;
    await expect(comm.allReduce(wrong)).rejects.toMatchObject({ field: "sendCounts" });
    await comm.barrier();
  }),
);

test("also behind the same call without it", () =>
  onEveryRank(async (comm) => {
    const send = comm.alloc("float32", 4);
    for (let step = 0; step < 3; step++) await comm.allReduce({ send, op: "sum" });
    const more = { send, op: "sum", root: 0 } as const;
    await expect(comm.allReduce(more)).rejects.toMatchObject({ field: "root" });
    await comm.barrier();
    const wrong = { send, op: "sum", sendCounts: [1] } as const;
    await expect(comm.allReduce(wrong)).rejects.toMatchObject({ field: "sendCounts" });
  }));

test("options are listed with the nearest name first", () => {
  expect(() => sim({ sead: 7 } as Wrong)).toThrow("needs one of seed, algorithms, like");
  expect(() => sim({ fault: [] } as Wrong)).toThrow("needs one of faults, seed, algorithms, like");
});

test("a split without a color is refused, and one with an undefined color joins none", () =>
  onEveryRank(async (comm) => {
    await expect(comm.split({} as Wrong)).rejects.toMatchObject({
      code: "ERR_COMM_ARG",
      field: "color",
      hint: "color: undefined joins none",
    });
    expect(await comm.split({ color: undefined })).toBeUndefined();
  }));
