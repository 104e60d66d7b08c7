/** `twinccl invariant --backend`: answers shown by calls, on the simulation, on processes, and on libraries that fold otherwise. */
import { sim } from "twinccl/sim";
import { describe, expect, onTestFinished, test } from "vitest";
import type { BackendSettings, BackendTable } from "../../../src/cli/context.ts";
import { cli } from "./harness.ts";

const ring = "invariant all-reduce -d bfloat16 --row 640 --count 5120..20K --nccl NCCL_ALGO=ring";

test("dependences are shown by their contributions, and drawn sizes by every element", async () => {
  const { status, out } = await cli(`${ring} --ranks 4 --ask size,position,channels --backend sim`);
  expect(status).toBe(0);
  const [, shown = ""] = out.split("shown on sim\n");
  const lines = shown.split("\n");
  for (const [at, name] of ["size", "position", "channels"].entries()) {
    expect(lines[at]).toMatch(
      new RegExp(`^  ${name} +0x(3f80 and 0x0000|0000 and 0x3f80)  as pred`),
    );
  }
  expect(lines[3]).toMatch(/^ {2}8 calls of 8 drawn sizes: (\d+) of \1 elements as promised$/);
});

test.each([
  [
    "tree over other channels and protocols",
    "all-reduce --ranks 3,4 --nccl NCCL_ALGO=allreduce:tree",
  ],
  [
    "average over LL128, rounded by position",
    "all-reduce --ranks 4 -d float32 -o avg --nccl NCCL_PROTO=LL128",
  ],
  ["reduce-scatter over hosts", "reduce-scatter --ranks 5 --topology h200-hosts"],
  ["reduce to another root", "reduce --ranks 4 --root 2"],
  ["maximum of integers", "all-reduce --ranks 3 -d int32 -o max"],
])("%s", async (_, call) => {
  const line = `invariant ${call} --count 100..6K --backend sim --sizes 5 --seed 3 --json`;
  const { status, out, err } = await cli(line);
  expect({ status, err }).toEqual({ status: 0, err: "" });
  const { answers, shown } = JSON.parse(out);
  expect(shown).toMatchObject({ backend: "sim", isAsPredicted: true, sizes: { differing: 0 } });
  expect(shown.sizes.calls).toBeGreaterThanOrEqual(5);
  const depending = answers.filter((each: { isInvariant: boolean }) => !each.isInvariant);
  expect(shown.answers.length + shown.omitted.length).toBe(depending.length);
});

test("padded groups have the folds of the smaller one", async () => {
  const line = "invariant all-reduce --ranks 3,4 -d float16 --count 1..4K --ask ranks --sizes 3";
  const { out } = await cli(
    `${line} --nccl NCCL_ALGO=allreduce:tree,NCCL_MAX_CTAS=1 --backend sim`,
  );
  expect(out).toMatch(/^ {2}9 calls of 3 drawn sizes: (\d+) of \1 elements as promised$/m);
});

test("processes show them too", async () => {
  const line = "invariant all-reduce --ranks 2,3 -d bfloat16 --count 100..2K --ask size,ranks";
  const { status, out } = await cli(`${line} --nccl NCCL_ALGO=ring --backend tcp --sizes 2`);
  expect(status).toBe(0);
  expect(out).toMatch(/^ {2}size {2}0x3f80 and 0x0000 {2}as predicted$/m);
  // A pair has one order, also among three.
  expect(out).toMatch(/^ {2}6 calls of 2 drawn sizes: (\d+) of \1 elements as promised$/m);
});

/** A library in the place of NCCL that pins what `change` makes of the settings, and logs what it is given. */
function library(change: (settings: BackendSettings) => BackendSettings["plan"], channels = 1) {
  const seen: BackendSettings[] = [];
  const backends: BackendTable = {
    nccl: (settings) => {
      seen.push(settings);
      const backend = sim({ like: "nccl-2.28", plan: change(settings) ?? {} });
      const plan = { algorithm: "Tree", protocol: "LL", channels };
      return Object.assign(backend, { plans: { take: () => [plan] } });
    },
  };
  return { seen, backends };
}

describe("NCCL", () => {
  const line =
    "invariant all-reduce --ranks 4 -d bfloat16 --count 512..600 --ask size --backend nccl --sizes 2";
  const settings = "--nccl NCCL_ALGO=allreduce:tree,NCCL_PROTO=LL,NCCL_MAX_CTAS=1,NCCL_DEBUG=WARN";

  test("gets the variables by a pin, or in the environment", async () => {
    const before = process.env["NCCL_DEBUG"];
    onTestFinished(() => {
      if (before === undefined) delete process.env["NCCL_DEBUG"];
      else process.env["NCCL_DEBUG"] = before;
    });
    const { seen, backends } = library(({ plan }) => plan);
    const { status, out } = await cli(`${line} ${settings}`, { backends });
    expect(out).toMatch(/^ {2}plans: 2 of 2 as predicted$/m);
    expect(status).toBe(0);
    expect(seen[0]).toEqual({
      plan: {
        variables: { NCCL_ALGO: "allreduce:tree", NCCL_PROTO: "LL", NCCL_MAX_CTAS: "1" },
      },
      readPlan: true,
    });
    expect(process.env["NCCL_DEBUG"]).toBe("WARN");
  });

  test("fails where it folds in another order", async () => {
    const { backends } = library(() => ({ algorithm: "Ring" }));
    const { status, out } = await cli(`${line} --nccl NCCL_ALGO=allreduce:tree`, { backends });
    expect(status).toBe(1);
    expect(out).toMatch(
      /^ {2}2 calls of 2 drawn sizes: \d+ of 1112 elements as promised, the first/m,
    );
    expect(out).toMatch(
      /^ {4}4 ranks, count 512, NCCL_ALGO=allreduce:tree: element \d+ of 512: promised 0x/m,
    );
  });

  test("fails where an element of a dependence has other bits", async () => {
    const { backends } = library(() => ({ algorithm: "Tree" }));
    const size = "invariant all-reduce --ranks 4 -d bfloat16 --count 512..9K --ask size --sizes 0";
    const { status, out } = await cli(`${size} --backend nccl --nccl NCCL_ALGO=ring`, { backends });
    expect(status).toBe(1);
    expect(out).toMatch(/^ {2}size {2}0x(\w+) and 0x\1 {2}predicted 0x/m);
  });

  test("fails where it logs another plan", async () => {
    const { backends } = library(({ plan }) => plan, 2);
    const { status, out } = await cli(`${line} ${settings.replace(",NCCL_DEBUG=WARN", "")}`, {
      backends,
    });
    expect(status).toBe(1);
    expect(out).toMatch(/^ {2}plans: 0 of 2 as predicted$/m);
  });
});

test("one job has neither two machines nor two libraries", async () => {
  const line = "invariant all-reduce --ranks 4 -d bfloat16 --count 1K..40K --sizes 0 --backend sim";
  const more = "--topology h200x8,h200-hosts --like nccl-2.28,nccl-2.30 --ask hosts,version";
  const { status, out } = await cli(`${line} ${more} --nccl NCCL_ALGO=ring`);
  expect(status).toBe(0);
  expect(out).toMatch(/^ {2}version {2}not shown {2}one job has one machine and library$/m);
});
