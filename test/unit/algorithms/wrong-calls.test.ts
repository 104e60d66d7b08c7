/** Every function of the entry with each of its arguments replaced by a wrong one: a typed error by field, or a result. */
import { inspect } from "node:util";
import { CommError } from "twinccl";
import * as entry from "twinccl/algorithms";
import { describe, expect, test } from "vitest";
import type { CallSet, CommInfo } from "../../../src/api/backend-entry.ts";

const { ring } = entry.catalogue.allReduce;
const { h200x8: profile } = entry.machineProfiles;
const program = entry.buildProgram("allReduce", ring, 4, -1);
const layout = entry.layoutOf(program, { count: 8 });
const link = entry.linkOf();
const model = entry.linkModel(link, 4);
const source = entry.lanesOfProgram(program);
const traffic = entry.trafficOf(source, layout);
const call = { collective: "allReduce", ranks: 4, count: 8, dtype: "float32", op: "sum" } as const;
const request: entry.PlanRequest = {
  ...{ version: "2.28", topology: entry.h200x8(4), collective: "allReduce", dtype: "float32" },
  ...{ op: "sum", count: 4096 },
};
const plan = entry.ncclPlan(request);
const blocks = entry.briefLane("allReduce", ring, 4) ?? [];
const folds: entry.Folds<string> = {
  own: (rank) => `${rank}`,
  into: (partial, rank) => partial + rank,
  join: (left, right) => left + right,
};
const work = { comm: { ranks: [0] }, collective: "barrier", calls: [{ rank: 0 }] };
const comm = { ranks: [0, 1] } as unknown as CommInfo;
const lanes = (): Int32Array => new Int32Array(8);

/** The name of each function, with right arguments. */
const calls = {
  MessageLog: [],
  ProgramBuilder: [
    { collective: "allReduce", algorithm: "own", ranks: 2, root: -1, chunksPerBlock: 1 },
  ],
  ValueTable: [4],
  acrossHypercube: [folds, 4, "nearest"],
  algorithmsOf: ["allReduce"],
  allToAllvBlocks: [
    [
      [1, 2],
      [3, 4],
    ],
  ],
  along: [folds, [0, 1]],
  averageScalar: ["float32", 4],
  bitsToNumber: ["float16", 1],
  bitsToNumbers: ["float16", new Uint16Array(2)],
  briefLane: ["allReduce", ring, 4],
  buildProgram: ["allReduce", ring, 4, -1],
  checkedProfile: [profile, "file"],
  choiceOf: [profile, call],
  differenceText: [entry.differing(plan, plan)],
  differing: [plan, plan],
  doublings: [4],
  elementHops: [plan, 0, 0],
  elementPlan: [plan, 0, 0],
  elementText: [plan, 0, 0],
  evaluate: [program, layout, [0, 0, 0, 0], model],
  execute: [program, false],
  explainInRankOrder: [call, comm, 0],
  fabricOf: [entry.torus([2, 2]), { gigabytesPerSecond: 1, hopLatencyPs: 1 }, 4],
  fatTree: [4, [2, 2]],
  findAlgorithm: ["allReduce", "ring"],
  findDeadlock: [program, 1],
  fitProfile: [profile, [], profile],
  foldFor: ["float32", "sum", 4, "separate"],
  foldText: [[0, 1], "sum"],
  foldedTiming: [blocks, 4, model],
  fuse: [program],
  graphFile: [entry.h200x8(8), [0, 1, 2, 3, 4, 5, 6, 7]],
  graphTopology: [entry.graphFile(entry.h200x8(8), [0, 1, 2, 3, 4, 5, 6, 7])],
  h200x8: [4],
  hypercubeOf: [4],
  input: [0],
  invariance: [
    { collective: "allReduce", dtype: "float32", op: "sum", ranks: 2, counts: { from: 8, to: 8 } },
  ],
  isTooLarge: [new Error("none")],
  lanesOf: ["float32", new ArrayBuffer(16), 0, 16],
  lanesOfProgram: [program],
  layoutOf: [program, { count: 8 }],
  libraryOf: ["nccl-2.28"],
  linkModel: [link, 4],
  linkOf: [{}, "sim"],
  ncclEnvironment: [{}],
  ncclFused: [plan],
  ncclLayout: [plan],
  ncclPlan: [request],
  ncclProgram: [plan],
  numberToBits: ["float16", 1],
  numbersToBits: ["float16", [1]],
  output: [0],
  outputsOf: [work as unknown as CallSet],
  packed: [[1, 2]],
  parseProfile: [JSON.stringify(profile), "file"],
  pieceAt: [plan, 0, 0],
  planFolds: [plan, "sum"],
  planOf: [entry.plannersOf({})(4), call],
  planOutline: [plan],
  plannersOf: [{}, "sim"],
  powerBelow: [4],
  predict: [
    { collective: "allReduce", algorithm: ring, ranks: 4, count: 8, bytesPerElement: 4, link },
  ],
  programName: [plan],
  proveFusion: [program, entry.fuse(program)],
  residualsOf: [profile, []],
  resolvePin: [{}],
  roundRing: [4, 0],
  roundScalar: ["float32", 1],
  rowBlocks: [program, [1, 2, 3, 4]],
  runEvents: [traffic, model, {}],
  runRecurrence: [traffic, model, {}],
  scalarBits: ["float32", 1],
  scratch: [0],
  smallestSafeCredits: [program, 4],
  stepAt: [program, 0],
  stepCount: [program],
  stepText: [entry.stepAt(program, 0)],
  takeSeparate: [lanes(), lanes(), 8, 4, 0],
  testedBytes: [call],
  timeOf: [profile, call],
  torus: [[2, 2]],
  trafficOf: [source, layout, { period: 4, symmetry: "rotation" }],
  undefinedReason: [plan],
  verifyAlgorithm: ["allReduce", ring, 4],
  verifyProgram: [program, ring],
  withRing: [entry.h200x8(4), [0, 1, 2, 3]],
  writtenLanes: ["allReduce", ring, 4],
} satisfies Partial<Record<keyof typeof entry, readonly unknown[]>>;

const functions = new Map<string, unknown>(
  Object.entries(entry).filter(([, value]) => typeof value === "function"),
);
const wrong = [
  undefined,
  null,
  true,
  -1,
  Number.NaN,
  1.5,
  2 ** 53,
  "3",
  "",
  {},
  [],
  () => undefined,
  1n,
  Symbol("none"),
  Object.create(null),
];

/** Calls a function, or makes an object of a class. */
function run(name: string, given: readonly unknown[]): unknown {
  const called = functions.get(name) as new (...all: unknown[]) => unknown;
  return /^class\b/.test(String(called))
    ? new called(...given)
    : Reflect.apply(called, undefined, given);
}

test("the table has every function", () => {
  expect(Object.keys(calls).sort()).toEqual([...functions.keys()].sort());
});

describe.each(Object.entries(calls) as [string, readonly unknown[]][])("%s", (name, right) => {
  test("takes right arguments", () => {
    expect(() => run(name, right)).not.toThrow();
  });

  test("throws nothing but typed errors for a wrong one", () => {
    for (let at = 0; at < right.length; at++) {
      for (const value of wrong) {
        try {
          run(name, right.with(at, value));
        } catch (error) {
          expect(error, `${name}, argument ${at}: ${inspect(value)}`).toBeInstanceOf(CommError);
        }
      }
    }
  });
});

const planner = entry.plannersOf({})(4);
const machine = entry.h200x8(4);
const [channel] = machine.channels as [entry.ChannelPaths];
const ringless = {
  ...machine,
  channels: [{ ...channel, ring: [0, 1, 2, 4] }],
};
const treeless = {
  ...machine,
  channels: [{ ...channel, tree: { ...channel.tree, root: -1 } }],
};
const hypercube = { period: 4, symmetry: "hypercube" };
const inWindows = { ...request, symmetric: { send: 0, recv: 0 } };
const exchange = { ...call, collective: "allToAll", op: undefined };
const square = entry.torus([2, 2]);
const predicted = { ...calls.predict[0] };
const ragged = [[1], [2, 3]];
const fabric = entry.fabricOf(entry.torus([2, 2]), { gigabytesPerSecond: 1, hopLatencyPs: 1 }, 4);
const twoLanes = { ...traffic, channels: 2, starts: Int32Array.of(...traffic.starts, 0, 0, 0, 0) };

test.each([
  ["algorithmsOf", "collective", [["allReduce"]]],
  ["buildProgram", "ranks", ["allReduce", ring, 0, -1]],
  ["allToAllvBlocks", "counts", [ragged]],
  ["rowBlocks", "counts", [program, [1, 2, 3]]],
  ["packed", "counts", [new Array(2)]],
  ["foldText", "order", [[{}], "sum"]],
  ["foldText", "order", [[0, [1, null]], "sum"]],
  ["execute", "inPlace", [program, "no"]],
  ["findDeadlock", "credits", [program, 1.5]],
  ["smallestSafeCredits", "limit", [program, "3"]],
  ["trafficOf", "represented", [source, layout, { ...hypercube, period: 3 }]],
  ["trafficOf", "represented", [source, layout, { ...hypercube, period: 0 }]],
  ["trafficOf", "represented", [source, layout, { ...hypercube, symmetry: "none" }]],
  ["scalarBits", "scalar", ["int32", 1.5]],
  ["layoutOf", "program.ranks", [{ ...program, ranks: 2 ** 53 }, { count: 8 }]],
  ["layoutOf", "program.root", [{ ...program, root: 4 }, { count: 8 }]],
  ["layoutOf", "program.chunksPerBlock", [{ ...program, chunksPerBlock: -1 }, { count: 8 }]],
  ["layoutOf", "program.chunksPerBlock", [{ ...program, chunksPerBlock: 0.5 }, { count: 8 }]],
  ["linkModel", "link.latencyPs", [{ ...link, latencyPs: -1 }, 4]],
  ["linkModel", "link.gigabytesPerSecond", [{ ...link, gigabytesPerSecond: 0 }, 4]],
  [
    "fabricOf",
    "cost.gigabytesPerSecond",
    [entry.torus([2, 2]), { gigabytesPerSecond: Number.NaN, hopLatencyPs: 1 }, 4],
  ],
  [
    "fabricOf",
    "cost.hopLatencyPs",
    [entry.torus([2, 2]), { gigabytesPerSecond: 1, hopLatencyPs: -1 }, 4],
  ],
  ["planOf", "ranks", [planner, { ...call, ranks: 0.5 }]],
  ["planOf", "count", [planner, { ...call, count: -1 }]],
  ["ncclPlan", "topology.channels[0].ring", [{ ...request, topology: ringless }]],
  ["ncclPlan", "forced.algorithm", [{ ...inWindows, forced: { algorithm: "Rng" } }]],
  ["ncclPlan", "forced.protocol", [{ ...inWindows, forced: { protocol: [] } }]],
  ["ncclPlan", "forced.algorithm", [{ ...request, forced: { algorithm: ["Ring", 1] } }]],
  ["timeOf", "forced.algorithm", [profile, { ...call, ranks: 1, forced: { algorithm: "Rng" } }]],
  ["choiceOf", "forced.protocol", [profile, { ...exchange, forced: { protocol: "ll" } }]],
  ["timeOf", "collective", [profile, { ...call, collective: Object.create(null) }]],
  ["testedBytes", "collective", [{ ...call, collective: Object.create(null) }]],
  ["choiceOf", "profile", [{ ...profile, topology: Object.create(null) }, call]],
  ["residualsOf", "profile", [{ ...profile, nccl: Symbol("none") }, []]],
  ["along", "order[1]", [folds, [0, Symbol("none")]]],
  ["numbersToBits", "numbers[0]", ["float16", [Object.create(null)]]],
  ["numbersToBits", "numbers[1]", ["float16", [1, "1"]]],
  ["predict", "topology", [{ ...predicted, topology: { ...square, ranks: Symbol("none") } }]],
  ["predict", "topology.period", [{ ...predicted, topology: { ...square, period: 0.5 } }]],
  ["withRing", "topology.ranks", [{ ...machine, ranks: Object.create(null) }, [0]]],
  ["graphFile", "topology.nodes", [{ ...machine, nodes: Symbol("none") }, [0]]],
  ["graphFile", "topology.channels[0].tree", [treeless, [0, 1, 2, 3]]],
  ["withRing", "topology.channels[0].tree", [treeless, [0, 1, 2, 3]]],
  ["ncclPlan", "topology", [{ ...request, topology: { ...machine, channels: [] } }]],
  ["ncclPlan", "topology.ringSearch", [{ ...request, topology: { ...machine, ringSearch: {} } }]],
  ["graphFile", "topology.treeSearch", [{ ...machine, treeSearch: undefined }, [0]]],
  ["ncclPlan", "topology.cpu", [{ ...request, topology: { ...machine, cpu: "arm" } }]],
  ["numberToBits", "x", ["float16", "1"]],
  ["trafficOf", "source.ranks", [{ ...source, ranks: 0.5 }, layout]],
  ["trafficOf", "source.channels", [{ ...source, channels: Number.NaN }, layout]],
  ["lanesOfProgram", "program.ranks", [{ ...program, ranks: -1 }]],
  ["verifyProgram", "program.starts", [{ ...program, ranks: 5 }, ring]],
  ["fuse", "program.channels", [{ ...program, channels: 0.5 }]],
  ["runEvents", "traffic.ranks", [{ ...traffic, ranks: 0.5 }, model]],
  ["runEvents", "traffic.channels", [{ ...traffic, channels: Number.NaN }, model]],
  ["runEvents", "traffic.starts", [{ ...traffic, ranks: 5 }, model]],
  ["runEvents", "model.latency", [traffic, { ...model, latency: -1 }]],
  ["runEvents", "credits", [traffic, model, { credits: 0.5 }]],
  ["runEvents", "credits", [traffic, model, { credits: Number.NaN }]],
  ["runEvents", "start[0]", [traffic, model, { start: [Number.NaN] }]],
  ["runEvents", "log", [traffic, model, { log: {} }]],
  ["runEvents", "onProgress", [traffic, model, { onProgress: 1 }]],
  ["runEvents", "fabric", [traffic, model, { fabric: { links: 1 } }]],
  ["runEvents", "fabric.links", [traffic, model, { fabric: { ...fabric, links: 0.5 } }]],
  ["runEvents", "fabric.link", [traffic, model, { fabric: { ...fabric, link: () => 0.5 } }]],
  ["runRecurrence", "traffic.ranks", [{ ...traffic, ranks: Number.NaN }, model]],
  ["runRecurrence", "traffic.channels", [twoLanes, model]],
  ["runRecurrence", "start[3]", [traffic, model, { start: [0, 0, 0, "1"] }]],
  ["evaluate", "start[1]", [program, layout, [0, Number.NaN, 0, 0], model]],
  ["foldedTiming", "blocks[0].times", [[{ times: 0.5, steps: [] }], 4, model]],
  ["foldedTiming", "blocks[0].steps[0]", [[{ times: 1, steps: [{ receive: -1 }] }], 4, model]],
])("%s refuses a wrong value of %s", (name, field, given) => {
  expect(() => run(name, given)).toThrow(expect.objectContaining({ field, code: "ERR_COMM_ARG" }));
});
