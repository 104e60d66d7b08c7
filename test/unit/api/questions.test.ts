/** Questions about calls: what no backend can do is supported by none, and explained by none. */
import { type Backend, createWorld, type Question } from "twinccl";
import { sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { cleanGpus, inWorld } from "../backends/nccl/gpus.ts";

const sound: readonly Question[] = [
  { collective: "allReduce" },
  { collective: "allReduce", dtype: "int32", op: { preMul: 2 }, count: 4 },
  { collective: "broadcast", dtype: "float16", root: 1 },
  { collective: "send", dtype: "int8", count: 0 },
  { collective: "split" },
];

/** By the field that is wrong. */
const senseless: readonly (readonly [string, object | undefined])[] = [
  ["collective", undefined],
  ["collective", { collective: "allreduce" }],
  ["dtype", { collective: "allReduce", dtype: "float31" }],
  ["dtype", { collective: "allReduce", dtype: Object.create(null) }],
  ["op", { collective: "allReduce", dtype: "int32", op: { preMul: 0.5 } }],
  ["op", { collective: "allReduce", dtype: "int32", op: "xor" }],
  ["count", { collective: "allReduce", dtype: "int32", count: -1 }],
  ["root", { collective: "broadcast", dtype: "int32", root: 2 }],
  ["counts", { collective: "allToAllv", dtype: "int32", counts: [[1, 2]] }],
  ["counts", { collective: "allToAllv", dtype: "int32", counts: new Array(2) }],
  ["counts", { collective: "allGatherv", dtype: "int32", counts: [new Array(2)] }],
  ["symmetric", { collective: "allReduce", dtype: "int32", symmetric: { sendOffset: -4 } }],
];

test("sim supports valid calls, and no others", async () => {
  const world = await createWorld({ backend: sim(), size: 2 });
  await world.run((comm) => {
    for (const question of sound)
      expect([question, comm.supports(question)]).toEqual([question, true]);
    for (const [field, question] of senseless as readonly [string, Question][]) {
      expect([question, comm.supports(question)]).toEqual([question, false]);
      expect(() => comm.explain(question)).toThrow(
        expect.objectContaining({ code: "ERR_COMM_ARG", field }),
      );
    }
  });
  await world.close();
});

test("the NCCL backend supports valid calls, and no others", () =>
  inWorld(cleanGpus(), 2, async (world) => {
    await world.run((comm) => {
      expect(sound.map((question) => comm.supports(question))).toEqual(sound.map(() => true));
      const supported = senseless.map(([, question]) => comm.supports(question as Question));
      expect(supported).toEqual(senseless.map(() => false));
    });
  }));

test.each(["allReduce", "reduce", "reduceScatter", "reduceScatterv"] as const)(
  "a %s is explained and estimated with its operator alone",
  async (collective) => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const rooted = { collective, dtype: "float32", count: 4, root: 0 } as const;
    const refused = (action: string) =>
      expect.objectContaining({
        code: "ERR_COMM_ARG",
        field: "op",
        message: `${action}: op: it was left out, needs sum, prod, min, max, avg or { preMul: scalar }`,
      });
    expect(() => world.explain(rooted)).toThrow(refused("explain"));
    await expect(world.estimate(rooted)).rejects.toEqual(refused("estimate"));
    expect(await world.estimate({ ...rooted, op: "sum" })).toBeGreaterThan(0);
    await world.close();
  },
);

test.each(["send", "sendRecv", "split"] as const)(
  "a %s has no plan to explain, nor to estimate by",
  async (collective) => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const question = { collective, dtype: "int8", count: 4 } as const;
    const refused = expect.objectContaining({
      code: "ERR_COMM_UNSUPPORTED",
      message: expect.stringMatching(new RegExp(`^${collective}: it has no plan of its own$`, "m")),
    });
    expect(() => world.explain(question)).toThrow(refused);
    await expect(world.estimate(question)).rejects.toEqual(refused);
    await world.close();
  },
);

test("the refusal of a session has the name of a capture", async () => {
  const asked: string[] = [];
  const simulation = sim();
  const backend: Backend = {
    name: "asked",
    probe: (request) => simulation.probe(request),
    open: async (request) => {
      const session = await simulation.open(request);
      session.refusal = ({ collective }) => {
        asked.push(collective);
        return collective === "capture" ? "it records nothing" : undefined;
      };
      return session;
    },
  };
  const world = await createWorld({ backend, size: 1 });
  const error = await world.run(async (comm) => {
    const send = comm.alloc("int8", 1);
    return comm.capture(() => void comm.allReduce({ send, op: "sum" })).catch((thrown) => thrown);
  });
  await world.close();
  expect(asked).toEqual(["allReduce", "capture"]);
  expect(error).toMatchObject([{ code: "ERR_COMM_UNSUPPORTED", collective: "capture" }]);
});
