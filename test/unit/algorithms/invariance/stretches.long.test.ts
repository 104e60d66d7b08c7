/** The breakpoints beside NCCL's choice and plan of every count around them. */
import { h200x8, ncclPlan } from "twinccl/algorithms";
import { describe, expect, test } from "vitest";
import { type CallRequest, Calls } from "../../../../src/algorithms/invariance/stretches.ts";
import { choose, modelBytes } from "../../../../src/algorithms/nccl/choice.ts";
import { isAll } from "../../../support/seed.ts";

const request = (more: Partial<CallRequest> & { readonly ranks?: number } = {}): CallRequest => {
  const { ranks = 8, ...rest } = more;
  const topology = h200x8(ranks);
  return {
    version: "2.28",
    topology,
    collective: "allReduce",
    dtype: "bfloat16",
    op: "sum",
    ...rest,
  };
};

const chosen = ({ collective, topology, forced }: CallRequest, count: number): string => {
  const size = modelBytes(collective, topology.ranks, 2 * count);
  const { algorithm, protocol } = choose({
    ...{ collective, topology, dtype: "bfloat16", size, forced },
    channels: topology.channels.length,
  });
  return `${algorithm} ${protocol}`;
};

describe("one algorithm and protocol holds between breakpoints", () => {
  const kinds: [string, CallRequest][] = [2, 3, 4, 5, 6, 7, 8].flatMap((ranks) => [
    [`all-reduce on ${ranks} ranks`, request({ ranks })] as [string, CallRequest],
    [`Tree on ${ranks} ranks`, request({ ranks, forced: { algorithm: "Tree" } })],
    [`reduce-scatter on ${ranks} ranks`, request({ ranks, collective: "reduceScatter" })],
  ]);
  test.each(kinds)("%s", (_, kind) => {
    const { choices } = new Calls(kind, { from: 1, to: 2 ** 25, row: 1 });
    expect(choices.length).toBeGreaterThan(1);
    expect(choices[0]?.from).toBe(1);
    expect(choices.at(-1)?.to).toBe(2 ** 25);
    let step = 1;
    for (const [at, { from, to, algorithm, protocol }] of choices.entries()) {
      expect(from).toBe(at === 0 ? 1 : (choices[at - 1]?.to as number) + 1);
      const name = `${algorithm} ${protocol}`;
      // Every count near the ends, and growing steps between.
      for (let count = from; count <= to; count += step) {
        step = Math.min(count - from, to - count) < 400 ? 1 : Math.min(7919, to - count - 390);
        if (chosen(kind, count) !== name) expect(`${count}: ${chosen(kind, count)}`).toBe(name);
      }
    }
  });
});

describe("the plan of a smaller count is that of the largest one, without its last elements", () => {
  const buffers = { buffSize: 8192, llBuffSize: 4096, ll128BuffSize: 15_360 };
  const kinds: [string, CallRequest, number?][] = [
    [
      "Ring LL on 3 ranks, several channels",
      request({ ranks: 3, forced: { algorithm: "Ring", protocol: "LL" } }),
      20_000,
    ],
    ["Ring LL", request({ forced: { algorithm: "Ring", protocol: "LL" } })],
    [
      "Ring LL, loops",
      request({ settings: buffers, forced: { algorithm: "Ring", protocol: "LL" } }),
    ],
    [
      "Ring Simple, loops",
      request({ settings: buffers, forced: { algorithm: "Ring", protocol: "Simple" } }),
    ],
    [
      "Tree on 3 ranks",
      request({ ranks: 3, forced: { algorithm: "Tree", protocol: "LL128" } }),
      40_000,
    ],
  ];
  test.each(kinds)("%s", (_, kind, from = 1) => {
    const counts = { from, to: from + 14_000, row: 1 };
    const calls = new Calls(kind, counts);
    type Pieces = ReturnType<typeof ncclPlan>["pieces"];
    const piecesOf = (count: number): Pieces => ncclPlan({ ...kind, count }).pieces;
    const orders = (pieces: Pieces, among: number): string[] => {
      const found: string[] = [];
      for (const { offset, length, order } of pieces) {
        const from = Math.min(offset, among);
        if (length === 0 || from === among) continue;
        const end = Math.min(offset + length, among);
        // Neighbours with one order are one range: only orders count.
        const last = found.at(-1);
        const text = ` ${order.join("+")}`;
        if (last?.endsWith(text))
          found[found.length - 1] = `${last.split(" ")[0]?.split("..")[0]}..${end}${text}`;
        else found.push(`${from}..${end}${text}`);
      }
      return found;
    };
    let stretches = 0;
    for (let count = counts.from; count <= counts.to; stretches++) {
      const { to, words } = calls.at(count);
      expect(words).not.toEqual([]);
      const parts = (isAll ? [0, 1, 2, 3, 4, 5, 6, 7] : [0, 3, 6]).map(
        (part) => count + Math.floor((part * (to - count)) / 8),
      );
      const largest = piecesOf(to);
      for (const each of new Set([...parts, Math.max(count, to - 1)])) {
        expect(orders(piecesOf(each), each)).toEqual(orders(largest, each));
      }
      count = to + 1;
    }
    expect(stretches).toBeGreaterThan(10);
  });
});
