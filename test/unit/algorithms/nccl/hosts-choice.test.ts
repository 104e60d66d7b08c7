/** NCCL's choice over hosts of one GPU: the switch points of its cost model at 10 Gb/s, channels and speeds. */
import { describe, expect, test } from "vitest";
import { choose } from "../../../../src/algorithms/nccl/choice.ts";
import { machineOf } from "../../../../src/algorithms/nccl/machines.ts";
import { ncclPlan } from "../../../../src/algorithms/nccl/request.ts";
import type { NcclCollective } from "../../../../src/algorithms/nccl/rules.ts";
import type { Topology } from "../../../../src/algorithms/nccl/topology.ts";
import type { ReduceOp } from "../../../../src/api/index.ts";

const at = (hosts: number, gigabitsPerSecond = 10): Topology =>
  machineOf({ hosts, gpusPerHost: 1, network: { kind: "socket", gigabitsPerSecond } })(hosts);

function chosen(collective: NcclCollective, topology: Topology, size: number): string {
  const channels = topology.channels.length;
  const choice = choose({ collective, topology, dtype: "uint8", channels, size });
  return `${choice.algorithm} ${choice.protocol}`;
}

/** Every switch of a collective, as `choice, first byte of the next choice`, like the tables of the record. */
function switches(collective: NcclCollective, topology: Topology): string {
  const found = [chosen(collective, topology, 1)];
  for (let low = 1; low < 2 ** 24; ) {
    const present = found.at(-1);
    let high = low;
    while (high < 2 ** 24 && chosen(collective, topology, high) === present) {
      high = Math.ceil(high * 1.01) + 1;
    }
    if (high >= 2 ** 24) break;
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (chosen(collective, topology, middle) === present) low = middle;
      else high = middle;
    }
    found.push(`${high}`, chosen(collective, topology, high));
    low = high;
  }
  return found.join(" ");
}

/**
 * Choices that NCCL 2.28.9 made, with the bytes at which the next one begins. At 21,600, 77,400 and 313,344 bytes two times are
 * equal in real numbers, and NCCL's floats decide for PAT. On 16 hosts a step of the tree's bandwidth at 8192 goes back once.
 */
const allReduces: readonly (readonly [number, string])[] = [
  [2, "Ring LL 41233 Ring Simple"],
  [3, "Tree LL 1447 Ring LL 57205 Ring Simple"],
  [4, "Tree LL 1508 Ring LL 74209 Ring Simple"],
  [5, "Tree LL 2656 Ring LL 91471 Ring Simple"],
  [8, "Tree LL 4600 Ring LL 143699 Ring Simple"],
  [12, "Tree LL 6043 Tree Simple 48733 Ring LL 213618 Ring Simple"],
  [16, "Tree LL 7999 Tree Simple 8192 Tree LL 8265 Tree Simple 84749 Ring LL 283623 Ring Simple"],
];

const scatters: readonly (readonly [number, string])[] = [
  [2, "Ring LL 21600 PAT Simple 34560 Ring Simple"],
  [3, "Ring LL 35641 Ring Simple"],
  [4, "Ring LL 40321 PAT Simple 47726 Ring Simple"],
  [5, "Ring LL 15301 PAT Simple 77401 Ring Simple"],
  [8, "Ring LL 2305 PAT Simple 167564 Ring Simple"],
  [12, "PAT Simple 313345 Ring Simple"],
  [16, "PAT Simple 453525 Ring Simple"],
];

test.each(allReduces)("an all-reduce on %i hosts", (hosts, stated) => {
  expect(switches("allReduce", at(hosts))).toBe(stated);
});

describe.each(["reduceScatter", "allGather"] as const)("%s", (collective) => {
  test.each(scatters)("on %i hosts", (hosts, stated) => {
    expect(switches(collective, at(hosts))).toBe(stated);
  });
});

test.each(["reduce", "broadcast"] as const)("a %s on any number of hosts", (collective) => {
  for (const hosts of [2, 3, 5, 16, 32]) {
    expect(switches(collective, at(hosts))).toBe("Ring LL 15721 Ring Simple");
  }
});

test("8-bit floats on more than 8 hosts avoid rings", () => {
  const choices = [8, 9].map((hosts) => {
    const topology = at(hosts);
    const question = { topology, dtype: "float8e4m3", channels: 2, size: 100_000 } as const;
    return choose({ ...question, collective: "allReduce" }).algorithm;
  });
  expect(choices).toEqual(["Ring", "Tree"]);
});

test("PAT leaves averages and pre-multiplied sums of reduce-scatters to rings", () => {
  const request = { version: "2.28", topology: at(16), dtype: "float32", count: 64 } as const;
  const algorithmOf = (op: ReduceOp): string =>
    ncclPlan({ ...request, collective: "reduceScatter", op }).algorithm;
  expect([algorithmOf("sum"), algorithmOf("avg"), algorithmOf({ preMul: 3 })]).toEqual([
    ...["PAT", "Ring", "Ring"],
  ]);
  expect(ncclPlan({ ...request, collective: "allGather" }).algorithm).toBe("PAT");
});

test.each([
  [0.5, 1, 0.1, 0.1],
  [1, 1, 0.12, 0.24],
  [10, 1, 1.2, 2.4],
  [25, 1, 3, 6],
  [100, 1, 12, 24],
  [200, 1, 24, 48],
  [400, 2, 24, 24],
])("the search at %d Gb/s", (gigabitsPerSecond, channels, between, within) => {
  const { ringSearch, treeSearch, ...topology } = at(4, gigabitsPerSecond);
  expect(ringSearch).toMatchObject({ channels, bandwidth: between, interBandwidth: between });
  expect(treeSearch).toMatchObject({ channels, bandwidth: within, interBandwidth: between });
  expect(topology.channels).toHaveLength(2 * channels);
  expect(topology.evidence).toBe(gigabitsPerSecond === 10 ? "measured" : "source");
});
