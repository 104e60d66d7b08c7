/** Links between GPUs, and NCCL's permitted use of them, from the libraries' answers. */
import { describe, expect, test } from "vitest";
import { nvlsState, p2pState } from "../../../../../src/backends/nccl/discovery/examine.ts";
import { linkKinds } from "../../../../../src/backends/nccl/discovery/link-kinds.ts";
import type { LinkEnd } from "../../../../../src/backends/nccl/result/nvml.ts";

/** Bus ids as CUDA writes them, and the same places as NVML's numbers make them. */
const busIds = ["0000:1B:00.0", "00000000:43:00.0", "0000:b7:1F.0"];
const places = ["0:1b:0", "0:43:0", "0:b7:1f"];
const toGpu = (index: number): LinkEnd => ({ kind: "gpu", place: places[index] });
const toSwitch: LinkEnd = { kind: "switch", place: "0:c4:0" };
const toProcessor: LinkEnd = { kind: "other", place: "6:0:0" };

const kindsOf = (links: readonly (readonly LinkEnd[] | undefined)[], level?: number) =>
  linkKinds(
    links.map((each, index) => ({ pciBusId: busIds[index] as string, links: each })),
    () => level,
  );

describe("the kind of a link", () => {
  test("is the number of NVLinks that lead to the other GPU", () => {
    const kinds = kindsOf(
      [[toGpu(1), toGpu(1), toGpu(2), toProcessor], [toGpu(0), toGpu(0)], [toGpu(0)]],
      50,
    );
    expect(kinds).toEqual([
      ["X", "NV2", "NV1"],
      ["NV2", "X", "SYS"],
      ["NV1", "SYS", "X"],
    ]);
  });

  test("is, on switches, the number that both have", () => {
    const links = (count: number) => Array<LinkEnd>(count).fill(toSwitch);
    expect(kindsOf([links(18), links(17), []], 30)).toEqual([
      ["X", "NV17", "PHB"],
      ["NV17", "X", "PHB"],
      ["PHB", "PHB", "X"],
    ]);
  });

  test.each([
    [0, "PIX"],
    [10, "PIX"],
    [20, "PXB"],
    [30, "PHB"],
    [40, "NODE"],
    [50, "SYS"],
    [60, null],
    [undefined, null],
  ])("is, without NVLink, the common ancestor: %s is %s", (level, kind) => {
    expect(kindsOf([[], []], level)[0]).toEqual(["X", kind]);
  });

  test("is unknown where links lead to an unknown device", () => {
    const unknown: LinkEnd = { kind: undefined, place: undefined };
    expect(kindsOf([[unknown], [unknown]], 50)[0]).toEqual(["X", null]);
    expect(kindsOf([[unknown], [toProcessor]], 50)[0]).toEqual(["X", "SYS"]);
    expect(kindsOf([undefined, []], 50)[0]).toEqual(["X", null]);
  });

  test("needs no device type at a GPU's bus id, as older drivers give none", () => {
    const at = (index: number): LinkEnd => ({ kind: undefined, place: places[index] });
    expect(kindsOf([[at(2)], [at(2)], [at(0), at(1)]], 20)).toEqual([
      ["X", "PXB", "NV1"],
      ["PXB", "X", "NV1"],
      ["NV1", "NV1", "X"],
    ]);
  });
});

/** GPUs of which those at the given indexes have multicast, and all or none reach each other. */
function gpus(multicast: readonly (boolean | null)[], reach = true) {
  const peers = (own: number) => multicast.map((_, index) => reach && index !== own);
  return multicast.map((each, index) => ({ index, peers: peers(index), multicast: each }));
}

describe("links that NCCL may use", () => {
  test.each([
    [[true, true], "these GPUs have multicast"],
    [[true], "this GPU has multicast"],
    [[false, false], "these GPUs have no multicast"],
    [[true, false, null], "of these GPUs 0 have multicast"],
    [[null, false], "whether there is multicast is unknown"],
  ])("of multicast %j: %s", (able, words) => {
    expect(nvlsState({ NCCL_NVLS_ENABLE: "0" }, gpus(able))).toBe(
      `off: NCCL_NVLS_ENABLE=0 (${words}); nccl({ nvls: true }) is refused`,
    );
  });

  test("of each other's memory", () => {
    const found = "all pairs of GPUs reach each other's memory";
    const three = gpus([null, null, null]);
    expect(p2pState({}, three)).toBe(found);
    expect(p2pState({ NCCL_P2P_DISABLE: "0" }, three)).toBe(found);
    expect(p2pState({ NCCL_P2P_DISABLE: "1" }, three)).toBe(`off: NCCL_P2P_DISABLE=1 (${found})`);
    expect(p2pState({ NCCL_P2P_LEVEL: "PIX" }, three)).toBe(
      `as far as NCCL_P2P_LEVEL=PIX (${found})`,
    );
    expect(p2pState({}, gpus([null, null], false))).toMatch(/^no pairs/);
    expect(p2pState({}, gpus([null]))).toBeNull();
  });
});
