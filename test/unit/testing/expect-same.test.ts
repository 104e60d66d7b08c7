/** The comparison of results, and its report of a difference. */
import { expectSame, type ProgramCall, type ProgramRun } from "twinccl/testing";
import { describe, expect, test } from "vitest";
import { bytesFromBits } from "../../../src/testing/oracle/elements.ts";

const placement = { form: "apart", lead: 0, tail: 0, host: false } as const;
const data = { dtype: "float32", payload: "bits", seed: 0, placement } as const;
const sum: ProgramCall = { ...data, kind: "allReduce", op: "sum", count: 2 };
const least: ProgramCall = { ...sum, op: "min" };
const copy: ProgramCall = { ...data, kind: "broadcast", root: 0, count: 2 };

function run(backend: string, call: ProgramCall, ...words: number[]): ProgramRun {
  const bytes = new Uint8Array(Uint32Array.from(words).buffer);
  const fine = { sent: bytes, bytes: new Uint8Array(8) };
  return {
    backend,
    outcomes: [{ label: "0", comm: 0, call, round: 0, ranks: [fine, { sent: bytes, bytes }] }],
  };
}

const nan = 0x7fc0_0000;
const otherNan = 0xffff_ffff;
const negativeZero = 0x8000_0000;

describe("expectSame", () => {
  test("names backends, call, rank, element and both bit patterns", () => {
    expect(() => expectSame(run("sim", sum, 1, 2), run("nccl", sum, 1, 3))).toThrow(
      "sim and nccl differ: call 0 (allReduce float32), rank 1, element 1: 0x00000002 against 0x00000003",
    );
  });

  test("refuses an unknown rule", () => {
    const compare = (): void => expectSame(run("a", sum, 1), run("b", sum, 1), "byte" as "bytes");
    expect(compare).toThrow('expectSame: rule: found "byte", needs one of results, bytes');
  });

  test.each([
    ["any NaN after a reduction", sum, nan, otherNan, "results", true],
    ["any NaN after a copy", copy, nan, otherNan, "results", false],
    ["any NaN, byte by byte", sum, nan, otherNan, "bytes", false],
    ["zeros after a minimum", least, 0, negativeZero, "results", true],
    ["zeros after a sum", sum, 0, negativeZero, "results", false],
    ["a NaN and a number", sum, nan, 1, "results", false],
    ["a zero and a number after a minimum", least, 0, 1, "results", false],
    ["infinity and NaN", sum, 0x7f80_0000, nan, "results", false],
  ] as const)("%s", (_, call, a, b, rule, same) => {
    const compare = (): void => expectSame(run("a", call, 5, a), run("b", call, 5, b), rule);
    if (same) expect(compare).not.toThrow();
    else expect(compare).toThrow("element 1");
  });

  /** Largest finite number, infinity where there is one, and two NaN. */
  const edges = [
    ["float16", 0x7bffn, 0x7c00n, 0x7c01n, 0xffffn],
    ["bfloat16", 0x7f7fn, 0x7f80n, 0x7f81n, 0xffc0n],
    ["float32", 0x7f7f_ffffn, 0x7f80_0000n, 0x7f80_0001n, 0xffc0_0000n],
    ["float64", 0x7fefn << 48n, 0x7ff0n << 48n, (0x7ff0n << 48n) | 1n, 0xfff8n << 48n],
    ["float8e4m3", 0x7dn, 0x7en, 0x7fn, 0xffn],
    ["float8e5m2", 0x7bn, 0x7cn, 0x7dn, 0xffn],
  ] as const;

  test.each(edges)(
    "%s: distinguishes NaN from the largest numbers",
    (dtype, finite, top, nan1, nan2) => {
      const call: ProgramCall = { ...sum, dtype, count: 1 };
      const one = (bits: bigint): ProgramRun => {
        const outcome = { sent: new Uint8Array(0), bytes: bytesFromBits(dtype, [bits]) };
        return {
          backend: "x",
          outcomes: [{ label: "0", comm: 0, call, round: 0, ranks: [outcome] }],
        };
      };
      expect(() => expectSame(one(nan1), one(nan2))).not.toThrow();
      expect(() => expectSame(one(top), one(nan1))).toThrow("element 0");
      expect(() => expectSame(one(finite), one(top))).toThrow("element 0");
    },
  );

  test("other counts, calls, lengths and members", () => {
    const a = run("a", sum, 1, 2);
    const [outcome] = a.outcomes;
    if (outcome === undefined) throw new Error("no outcome");
    const with1 = (more: object): ProgramRun => ({
      backend: "b",
      outcomes: [
        { ...outcome, ranks: [outcome.ranks[0], { ...outcome.ranks[1], ...more } as never] },
      ],
    });
    expect(() => expectSame(a, with1({ recvCounts: [1] }))).toThrow(
      "recvCounts undefined against 1",
    );
    expect(() => expectSame(a, with1({ bytes: new Uint8Array(4) }))).toThrow("8 bytes against 4");
    expect(() => expectSame(a, run("b", copy, 1, 2))).toThrow("against broadcast float32");
    expect(() => expectSame(a, { backend: "b", outcomes: [] })).toThrow("1 calls against 0");
    const alone = {
      backend: "b",
      outcomes: [{ ...outcome, ranks: [outcome.ranks[0], undefined] }],
    };
    expect(() => expectSame(a, alone)).toThrow("rank 1 is in one only");
  });
});
