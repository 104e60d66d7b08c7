/** NCCL's variables, parsed as NCCL does from 2.24 on. */
import { InvalidArgumentError } from "twinccl";
import { describe, expect, test } from "vitest";
import { channelBudget } from "../../../../src/algorithms/nccl/choice.ts";
import { ncclEnvironment } from "../../../../src/algorithms/nccl/environment.ts";
import type { NcclCollective } from "../../../../src/algorithms/nccl/rules.ts";
import { h200x8 } from "../../../../src/algorithms/nccl/topology.ts";

const allowed = (
  variables: Record<string, string>,
  collective: NcclCollective = "allReduce",
): unknown => {
  const { algorithm = "all", protocol = "all" } = ncclEnvironment(variables).forced(collective);
  return [`${algorithm}`, `${protocol}`];
};

test.each([
  [{}, "all", "all"],
  [{ NCCL_ALGO: "Tree" }, "Tree", "all"],
  [{ NCCL_ALGO: "ring,tree" }, "Tree,Ring", "all"],
  [{ NCCL_ALGO: "^ring" }, "Tree,PAT", "all"],
  [{ NCCL_ALGO: "NVLS,Ring" }, "Ring", "all"],
  [{ NCCL_ALGO: "AllReduce:TREE" }, "Tree", "all"],
  [{ NCCL_ALGO: "ring;allreduce:tree" }, "Tree", "all"],
  [{ NCCL_ALGO: "broadcast:ring" }, "all", "all"],
  [{ NCCL_ALGO: "allreduce:tree;allreduce:ring" }, "Ring", "all"],
  [{ NCCL_PROTO: "^LL,ll128" }, "all", "Simple"],
  [{ NCCL_PROTO: "LL;allreduce:^LL" }, "all", "LL128,Simple"],
  [{ NCCL_PROTO: "reduce:LL" }, "all", "all"],
  // Words and entries without a letter do not count, as in NCCL.
  [{ NCCL_ALGO: "", NCCL_PROTO: "^" }, "all", "LL,LL128,Simple"],
  [{ NCCL_ALGO: ";allreduce:tree,,;", NCCL_PROTO: "allreduce::LL" }, "Tree", "LL"],
  [{ NCCL_PAT_ENABLE: "0" }, "Tree,Ring", "all"],
  [{ NCCL_PAT_ENABLE: "2", NCCL_ALGO: "^ring" }, "Tree,PAT", "all"],
  [{ NCCL_PAT_ENABLE: "0", NCCL_ALGO: "^ring" }, "Tree", "all"],
])("%o allows %s with %s for an all-reduce", (variables, algorithm, protocol) => {
  expect(allowed(variables as Record<string, string>)).toEqual([algorithm, protocol]);
});

test("collectives without an entry keep everything", () => {
  expect(allowed({ NCCL_ALGO: "allreduce:tree", NCCL_PROTO: "Simple" }, "broadcast")).toEqual([
    "all",
    "Simple",
  ]);
});

describe("are refused by name", () => {
  test.each([
    [{ NCCL_ALGO: "trea" }, 'NCCL_ALGO: found "trea"'],
    [{ NCCL_ALGO: "allreduce:ring,trea" }, 'NCCL_ALGO: found "trea"'],
    [{ NCCL_ALGO: "all-reduce:tree" }, 'NCCL_ALGO: found "all-reduce"'],
    [{ NCCL_ALGO: "allreduce:tree;ring" }, 'NCCL_ALGO: found "ring"'],
    [{ NCCL_ALGO: "NVLS" }, "no plan of NVLS is known"],
    [{ NCCL_ALGO: ";tree" }, "a collective before every entry but the first"],
    [{ NCCL_ALGO: "allreduce:tree:ring" }, "one colon"],
    [{ NCCL_ALGO: "constructor:tree" }, 'NCCL_ALGO: found "constructor"'],
    [{ NCCL_ALGO: "tree, ring" }, 'NCCL_ALGO: found " ring"'],
    [{ NCCL_PAT_ENABLE: "1" }, "0 or 2"],
    [{ NCCL_NVLS_ENABLE: "off" }, "0, 1 or 2"],
    [{ NCCL_MAX_CTAS: 1 }, "NCCL_MAX_CTAS: found 1, needs a text"],
    [{ NCCL_PROTO: "^LL,LL128,Simple" }, "at least one protocol"],
    [{ NCCL_MAX_CTAS: "0" }, "a whole number above 0"],
    [{ NCCL_MAX_CTAS: "010" }, "a whole number above 0, without a leading 0"],
    [{ NCCL_MAX_CTAS: "1", NCCL_MAX_NCHANNELS: "1" }, "it once"],
    [{ NCCL_FOO: "1" }, "NCCL_FOO"],
  ])("%o", (variables, text) => {
    const parse = (): unknown =>
      ncclEnvironment(variables as Record<string, string>).forced("allReduce");
    expect(parse).toThrow(InvalidArgumentError);
    expect(parse).toThrow(text);
  });
});

test("in-switch reduction is possible unless a variable excludes it", () => {
  const nvls = (variables: Record<string, string>): boolean =>
    ncclEnvironment(variables).allowsNvls("allReduce");
  expect(nvls({})).toBe(true);
  expect(nvls({ NCCL_ALGO: "NVLS,Ring" })).toBe(true);
  expect(nvls({ NCCL_ALGO: "allreduce:tree" })).toBe(false);
  expect(nvls({ NCCL_NVLS_ENABLE: "0" })).toBe(false);
});

test("numbers of threads beside multiples of a warp become the maximum", () => {
  const budget = (
    variables: Record<string, string>,
    protocol: "LL" | "LL128" | "Simple",
  ): number => {
    const { threads = 0, ll128Threads = 0 } = ncclEnvironment(variables).settings;
    return channelBudget({
      ...{ collective: "allReduce", algorithm: "Tree", protocol, topology: h200x8(8) },
      ...{ bytes: 65_536, channels: 64, threads: { threads, ll128Threads } },
    });
  };
  expect(budget({}, "Simple")).toBe(2);
  expect(budget({ NCCL_NTHREADS: "1" }, "Simple")).toBe(2);
  expect(budget({ NCCL_NTHREADS: "128" }, "Simple")).toBe(8);
  expect(budget({ NCCL_NTHREADS: "32" }, "Simple")).toBe(16);
  expect(budget({ NCCL_NTHREADS: "128" }, "LL128")).toBe(12);
  expect(budget({ NCCL_LL128_NTHREADS: "160" }, "LL128")).toBe(51);
});
