/** Arguments that `predict` refuses by name, instead of a time that means nothing. */
import { InvalidArgumentError } from "twinccl";
import {
  type Algorithm,
  catalogue,
  fatTree,
  input,
  linkOf,
  output,
  predict,
  torus,
} from "twinccl/algorithms";
import { expect, test } from "vitest";

const call = {
  collective: "allReduce",
  algorithm: catalogue.allReduce.ring,
  ranks: 8,
  count: 1024,
  bytesPerElement: 4,
  link: linkOf({ latencyNs: 1000, gigabytesPerSecond: 50 }),
} as const;

test("every valid call has a time, on each wiring of its ranks", () => {
  expect(predict(call).timePs).toBeGreaterThan(0);
  for (const topology of [fatTree(8, [2]), torus([8]), torus([2, 4])]) {
    expect(predict({ ...call, topology, hopLatencyPs: 500 }).timePs).toBeGreaterThan(0);
  }
});

test.each<[string, object]>([
  ["toplogy", { toplogy: torus([8]) }],
  ["topology", { topology: fatTree(4, [2]) }],
  ["topology", { topology: torus([4, 4]) }],
  ["credits", { credits: 0 }],
  ["count", { count: Number.NaN }],
  ["count", { count: -1 }],
  ["count", { count: undefined }],
  ["bytesPerElement", { bytesPerElement: 0 }],
  ["overheadPs", { overheadPs: -1 }],
  ["hopLatencyPs", { hopLatencyPs: 1e300 }],
  ["link.latencyPs", { link: { latencyPs: -1, gigabytesPerSecond: 50 } }],
  ["link.gigabytesPerSecond", { link: { latencyPs: 1, gigabytesPerSecond: 0 } }],
  ["credits", { credits: 2 ** 40 }],
  ["overheadPs", { overheadPs: null }],
  ["hopLatencyPs", { hopLatencyPs: null }],
  ["topology", { topology: { ranks: 8 } }],
  ["link.gigabytesPerSecond", { link: { latencyPs: 1, gigabytesPerSecond: 5e-324 } }],
  ["link.gigabytesPerSecond", { link: { latencyPs: 1, gigabytesPerSecond: "50" } }],
  ["algorithm", { algorithm: catalogue.broadcast.chain }],
  ["algorithm", { algorithm: "ring" }],
  ["collective", { collective: "allreduce" }],
  ["ranks", { ranks: 0 }],
  ["root", { collective: "reduce", algorithm: catalogue.reduce.chain, root: 8 }],
])("a wrong %s is refused by name: %j", (field, wrong) => {
  const ask = () => predict({ ...call, ...wrong } as never);
  expect(ask).toThrow(InvalidArgumentError);
  expect(ask).toThrow(expect.objectContaining({ field }));
  expect(ask).toThrow(`predict: ${field}: `);
});

test("wirings without ranks are refused", () => {
  expect(() => torus([])).toThrow("torus: dimensions: found none");
  expect(() => fatTree(0, [2])).toThrow("fatTree: ranks: found 0");
});

test.each<[string, () => unknown]>([
  ["torus: dimensions: found 5", () => torus(5 as never)],
  ["torus: dimensions: found undefined", () => torus(undefined as never)],
  ["torus: dimensions: found 100000000 x 100000000", () => torus([1e8, 1e8])],
  ["fatTree: groups: found 4", () => fatTree(8, 4 as never)],
  ["fatTree: groups: found 1099511627776 x 2", () => fatTree(8, [2 ** 40, 2])],
  ["fatTree: oversubscription: found 1e+300", () => fatTree(8, [2], 1e300)],
  ['fatTree: oversubscription: found "2"', () => fatTree(8, [2], "2" as never)],
])("%s is refused", (message, call) => {
  expect(call).toThrow(InvalidArgumentError);
  expect(call).toThrow(message);
});

/** Each rank sends two chunks to the next one, and receives them in that order after both. */
const twoAhead: Algorithm = {
  ...catalogue.allReduce.ring,
  chunksPerBlock: () => 2,
  symmetry: undefined,
  write: (program) =>
    program.everyRank((lane, rank) => {
      const [next, previous] = [(rank + 1) % program.ranks, (rank + 7) % program.ranks];
      lane.send(input(0), next).send(input(1), next);
      lane.recv(previous, output(0)).recv(previous, output(1));
    }),
};
/** Each rank receives before it sends. */
const stuck: Algorithm = {
  ...twoAhead,
  write: (program) =>
    program.everyRank((lane, rank) => {
      lane.recv((rank + 7) % program.ranks, output(0)).send(input(0), (rank + 1) % program.ranks);
    }),
};

test.each<[engine: string, change: object]>([
  ["recurrence", { algorithm: stuck }],
  ["shared links", { algorithm: stuck, topology: torus([8]) }],
  ["lanes", { algorithm: { ...stuck, channels: 2 } }],
  ["credits", { algorithm: twoAhead, credits: 1 }],
])("a program that never ends is refused, with its rank: %s", (_, change) => {
  const ask = () => predict({ ...call, ...change });
  expect(ask).toThrow(expect.objectContaining({ code: "ERR_COMM_UNSUPPORTED" }));
  expect(ask).toThrow("a program that never ends: rank 0 waits for a message that is not sent");
});

test("a program that needs two credits ends with two", () => {
  expect(predict({ ...call, algorithm: twoAhead, credits: 2 }).timePs).toBeGreaterThan(0);
});
