/** Plans as a whole: fold orders (3.5, 4), rounding (5.5), what is refused, what is explained, what differs. */
import { describe, expect, test } from "vitest";
import { differenceText, differing } from "../../../../src/algorithms/nccl/differing.ts";
import {
  elementHops,
  elementPlan,
  elementText,
  pieceAt,
} from "../../../../src/algorithms/nccl/explain.ts";
import {
  graphFile,
  graphTopology,
  ncclEnvironment,
  ncclFused,
  ncclLayout,
  ncclProgram,
  planFolds,
  planOutline,
  programName,
  topologies,
  undefinedReason,
} from "../../../../src/algorithms/nccl/index.ts";
import { isFusedAt, takeSeparate } from "../../../../src/algorithms/nccl/plan.ts";
import type { NcclPlan, PlanRequest } from "../../../../src/algorithms/nccl/plan-types.ts";
import { ncclPlan } from "../../../../src/algorithms/nccl/request.ts";
import { h200x8, withRing } from "../../../../src/algorithms/nccl/topology.ts";
import { CommError, InvalidArgumentError, UnsupportedError } from "../../../../src/api/index.ts";

const base = { version: "2.28", collective: "allReduce", dtype: "float32", op: "sum" } as const;
const plan = (n: number, count: number, more: Partial<PlanRequest> = {}): NcclPlan =>
  ncclPlan({ ...base, topology: h200x8(n), count, ...more });
const order = (of: NcclPlan, element: number, block = 0): string =>
  pieceAt(of, element, block).order.join("");

describe("fold orders", () => {
  test("Ring all-reduce starts after the chunk's owner", () => {
    expect(order(plan(4, 1), 0)).toBe("1230");
    const five = plan(4, 5);
    expect([0, 3, 4].map((element) => order(five, element))).toEqual(["1230", "1230", "2301"]);
    const half = plan(3, 100, { dtype: "float16" });
    expect([39, 40, 80].map((element) => order(half, element))).toEqual(["120", "201", "012"]);
  });
  test("reduce-scatter and reduce end at their rank", () => {
    const scatter = plan(4, 100, { collective: "reduceScatter" });
    expect([0, 1, 2, 3].map((block) => order(scatter, 99, block))).toEqual([
      "1230",
      "2301",
      "3012",
      "0123",
    ]);
    expect(order(plan(4, 100, { collective: "reduce", root: 2 }), 50)).toBe("3012");
  });
  test("Tree folds a chain from its leaf", () => {
    const forced = { algorithm: "Tree", protocol: "Simple" } as const;
    expect(order(plan(5, 100, { forced }), 0)).toBe("43210");
    // 24 channels of 16 KiB: at 3 ranks they have three chains, at 2 ranks two.
    const of = (n: number): string[] => {
      const large = plan(n, 24 * 65_536, { forced });
      const found: string[] = [];
      for (const { channel, order: ranks } of large.pieces) found[channel] = ranks.join("");
      return found;
    };
    const repeat = (times: number, text: string): string[] => new Array<string>(times).fill(text);
    const three = [...repeat(6, "210"), ...repeat(3, "021"), ...repeat(3, "102")];
    expect(of(3)).toEqual([...three, ...three]);
    const two = [...repeat(6, "10"), ...repeat(6, "01")];
    expect(of(2)).toEqual([...two, ...two]);
  });
  test("a channel limit keeps the first channels", () => {
    const forced = { algorithm: "Tree", protocol: "Simple" } as const;
    const limited = plan(3, 1e6, { forced, settings: { maxChannels: 5 } });
    expect(limited.channels).toBe(5);
    expect(new Set(limited.pieces.map((piece) => piece.order.join("")))).toEqual(new Set(["210"]));
  });
});

describe("rounding", () => {
  const rounding = (dtype: PlanRequest["dtype"], protocol: "LL" | "LL128" | "Simple"): string =>
    plan(3, 100, { dtype, op: "avg", forced: { algorithm: "Ring", protocol } }).rounding;
  test("goes by type and protocol", () => {
    expect(rounding("float32", "Simple")).toBe("fused");
    expect(rounding("float64", "LL")).toBe("fused");
    expect(rounding("float32", "LL128")).toBe("byPosition");
    expect(rounding("bfloat16", "LL128")).toBe("separate");
    expect(rounding("float16", "LL")).toBe("fused");
    expect(rounding("float8e4m3", "Simple")).toBe("none");
    expect(rounding("int32", "LL128")).toBe("none");
    expect(plan(3, 100).rounding).toBe("none");
  });
  test("by position: the first 8 bytes of a pack, and four packs whole", () => {
    const separate = [];
    for (let byte = 0; byte < 960; byte += 8) if (!isFusedAt(byte)) separate.push(byte);
    expect(separate).toHaveLength(56);
    expect(separate.every((byte) => byte % 16 === 8)).toBe(true);
    for (const pack of [7, 15, 23, 31]) expect(isFusedAt(pack * 16 + 8)).toBe(true);
    for (const pack of [39, 47, 55]) expect(isFusedAt(pack * 16 + 8)).toBe(false);
    expect(isFusedAt(960 + 8)).toBe(isFusedAt(8));
  });
  test("is counted from the chunk in a Ring all-reduce, from the part elsewhere", () => {
    const forced = { algorithm: "Ring", protocol: "LL128" } as const;
    const ring = plan(3, 1000, { op: "avg", forced });
    // 1000 elements: chunks of 336; element 338 is the third of the second chunk.
    expect(elementPlan(ring, 2).rounding).toBe("separate");
    expect(elementPlan(ring, 336).rounding).toBe("fused");
    expect(elementPlan(ring, 338).rounding).toBe("separate");
    const reduce = plan(3, 10_000, { op: "avg", forced, collective: "reduce", root: 0 });
    expect(reduce.channels).toBeGreaterThan(1);
    const start = reduce.pieces[1]?.offset ?? 0;
    expect(elementPlan(reduce, start).rounding).toBe("fused");
    expect(elementPlan(reduce, start + 2).rounding).toBe("separate");
  });
  test("blocks are joined by position", () => {
    const fused = new Float32Array(300).fill(1);
    const apart = new Float32Array(300).fill(2);
    takeSeparate(fused, apart, 300, 4, 7);
    fused.forEach((value, i) => {
      expect(value).toBe(isFusedAt((7 + i) * 4) ? 1 : 2);
    });
  });
});

describe("refused calls", () => {
  test("unknown versions", () => {
    for (const version of ["2.26", "2.31", "2.28.", "2.28.9.1", "3", "", "constructor"]) {
      expect(() => plan(4, 1, { version }), version).toThrow(UnsupportedError);
    }
  });
  test("more ranks than GPUs", () => {
    expect(() => h200x8(9)).toThrow(/8 GPUs/);
    expect(() => h200x8(0)).toThrow(/0 ranks/);
  });
  test("Tree for anything but an all-reduce", () => {
    const forced = { algorithm: "Tree" } as const;
    expect(() => plan(4, 1, { collective: "reduceScatter", forced })).toThrow(UnsupportedError);
  });
  test("arguments of an impossible call", () => {
    expect(() => plan(4, -1)).toThrow(/count/);
    expect(() => plan(4, 1, { collective: "reduce" })).toThrow(/root/);
    expect(() => plan(4, 1, { op: undefined })).toThrow(/op/);
    expect(() => plan(4, 1, { collective: "allGather" })).toThrow(/op/);
    expect(() => plan(4, 1, { settings: { maxChannels: 65 } })).toThrow(/1..64/);
    expect(() => plan(4, 1, { settings: { buffSize: 0 } })).toThrow(/bytes/);
    expect(() => plan(4, 1, { settings: { minChannels: 4, maxChannels: 2 } })).toThrow(
      /at most maxChannels, 2/,
    );
    expect(() => pieceAt(plan(4, 10), 10)).toThrow(/element 10/);
  });
});

test.each<[string, object | undefined]>([
  ["options", undefined],
  ["version", { version: 2.28 }],
  ["topology", { topology: undefined }],
  ["topology", { topology: "h200x8" }],
  ["topology", { topology: {} }],
  ["collective", { collective: "allToAll" }],
  ["collective", { collective: "toString" }],
  ["dtype", { dtype: "float" }],
  ["op", { op: "add" }],
  ["op", { op: { preMul: "x" } }],
  ["op", { dtype: "int8", op: { preMul: 300 } }],
  ["settings", { settings: null }],
  ["settings.channels", { settings: { channels: 4 } }],
  ["forced", { forced: "Ring" }],
  ["forced.algo", { forced: { algo: "Ring" } }],
  ["symmetric.recv", { symmetric: { send: 0 } }],
  ["symetric", { symetric: { send: 0, recv: 0 } }],
])("a wrong %s of a plan is refused by name: %j", (field, wrong) => {
  const call = { ...base, topology: h200x8(4), count: 100 };
  const ask = () => ncclPlan(wrong === undefined ? (undefined as never) : { ...call, ...wrong });
  expect(ask).toThrow(InvalidArgumentError);
  expect(ask).toThrow(expect.objectContaining({ field }));
});

test.each<[string, string, () => unknown]>([
  ["withRing", "order", () => withRing(h200x8(4), [1, 2])],
  ["withRing", "order", () => withRing(h200x8(4), [0, 0, 1, 1])],
  ["withRing", "order", () => withRing(h200x8(4), undefined as never)],
  ["graphFile", "devices", () => graphFile(h200x8(4), [0, 1])],
  ["graphFile", "devices", () => graphFile(h200x8(4), [0, 0, 1, 2])],
  ["graphFile", "devices", () => graphFile(h200x8(2), undefined as never)],
  ["graphFile", "topology", () => graphFile(topologies["h200-hosts"](2), [0, 1])],
  ["h200-hosts", "ranks", () => topologies["h200-hosts"](0)],
  ["h200-hosts", "ranks", () => topologies["h200-hosts"](1.5)],
  ["graphTopology", "topology", () => graphTopology(undefined as never)],
  ["ncclEnvironment", "variables", () => ncclEnvironment(undefined as never)],
])("%s refuses a wrong %s", (_name, field, call) => {
  expect(call).toThrow(CommError);
  expect(call).toThrow(expect.objectContaining({ field }));
});

test.each<[string, string, (wrong: never) => unknown]>([
  ["differing", "a", (wrong) => differing(wrong, plan(2, 1))],
  ["differing", "b", (wrong) => differing(plan(2, 1), wrong)],
  ["elementPlan", "plan", (wrong) => elementPlan(wrong, 0)],
  ["elementText", "plan", (wrong) => elementText(wrong, 0)],
  ["elementHops", "plan", (wrong) => elementHops(wrong, 0)],
  ["pieceAt", "plan", (wrong) => pieceAt(wrong, 0)],
  ["planOutline", "plan", planOutline],
  ["planFolds", "plan", (wrong) => planFolds(wrong, "sum")],
  ["ncclFused", "plan", ncclFused],
  ["ncclLayout", "plan", ncclLayout],
  ["ncclProgram", "plan", ncclProgram],
  ["programName", "plan", programName],
  ["undefinedReason", "plan", undefinedReason],
])("%s refuses another value as its plan %s", (name, field, call) => {
  for (const wrong of [undefined, null, 7, {}, [], "Ring"]) {
    expect(() => call(wrong as never)).toThrow(
      expect.objectContaining({
        ...{ code: "ERR_COMM_ARG", field },
        message: expect.stringMatching(new RegExp(`^${name}: ${field}: found .*, needs a plan of`)),
      }),
    );
  }
});

describe("explaining", () => {
  test("an element in words", () => {
    expect(elementText(plan(4, 40_000, { settings: { maxChannels: 1 } }), 34_576)).toBe(
      "element 34576: channel 0, loop 1, chunk 1 (elements 34576..36383); " +
        "fold order r2, r3, r0, r1; rounded at every hop",
    );
    const symmetric = plan(4, 100, { dtype: "float16", symmetric: { send: 2, recv: 2 } });
    expect(elementText(symmetric, 0)).toContain("accumulated in float32");
    expect(elementText(symmetric, 0)).toContain("does not define");
    expect(elementText(plan(4, 1, { op: undefined, collective: "allGather" }), 0, 2)).toContain(
      "fold order r2; copied",
    );
    expect(elementText(plan(1, 5), 4)).toContain("one rank");
  });
  test("every element of a plan has its piece", () => {
    for (const count of [1, 17, 1000, 40_000]) {
      const of = plan(5, count, { settings: { llBuffSize: 4096 } });
      for (let element = 0; element < count; element++) {
        const { offset, length } = pieceAt(of, element);
        expect(element >= offset && element < offset + length).toBe(true);
      }
    }
  });
});

describe("differences between plans", () => {
  const forced = (protocol: "LL" | "LL128" | "Simple") =>
    ({ algorithm: "Ring", protocol }) as const;

  /** Counts what the fast way must find, element by element. */
  function naive(a: NcclPlan, b: NcclPlan): { differing: number; first: number | undefined } {
    let count = 0;
    let first: number | undefined;
    for (let element = 0; element < a.count; element++) {
      const [x, y] = [elementPlan(a, element), elementPlan(b, element)];
      const same = x.rounding === y.rounding && x.piece.order.join("") === y.piece.order.join("");
      if (same) continue;
      count++;
      first ??= element;
    }
    return { differing: count, first };
  }

  test("are counted as by comparing element by element", () => {
    for (const op of ["sum", "avg"] as const) {
      for (const count of [7, 1000, 20_011]) {
        for (const [left, right] of [
          ["LL", "LL128"],
          ["LL128", "Simple"],
          ["LL", "Simple"],
        ] as const) {
          const a = plan(5, count, { op, forced: forced(left) });
          const b = plan(5, count, { op, forced: forced(right) });
          const { differing: found, elements, first } = differing(a, b);
          expect(elements).toBe(count);
          expect({ differing: found, first: first?.element }).toEqual(naive(a, b));
        }
      }
    }
  });
  test("two patterns counted from different starts", () => {
    const a = plan(5, 30_011, { op: "avg", forced: forced("LL128") });
    const b = plan(5, 30_011, { op: "avg", forced: forced("LL128"), settings: { maxChannels: 1 } });
    const { differing: found, first } = differing(a, b);
    expect({ differing: found, first: first?.element }).toEqual(naive(a, b));
  });
  test("are empty where the order has no effect", () => {
    const none = "every element is equal";
    const pair = (more: Partial<PlanRequest>): string => {
      const a = plan(5, 20_011, { ...more, forced: forced("LL") });
      return differenceText(differing(a, plan(5, 20_011, { ...more, forced: forced("Simple") })));
    };
    expect(pair({ dtype: "int32" })).toBe(none);
    expect(pair({ op: "max" })).toBe(none);
    expect(pair({})).toMatch(/^\d+\.\d % of the elements may differ, first at \d+$/);
    expect(pair({ collective: "reduceScatter" })).toBe(none);
    const two = (protocol: "LL" | "Simple"): NcclPlan =>
      plan(2, 20_011, { forced: forced(protocol) });
    expect(differenceText(differing(two("LL"), two("Simple")))).toBe(none);
  });
  test("need two plans of one call", () => {
    expect(() => differing(plan(4, 10), plan(4, 11))).toThrow(/count: found 10 and 11/);
    expect(() => differing(plan(4, 10), plan(4, 10, { op: "avg" }))).toThrow(
      /op: found sum and avg/,
    );
  });
});
