/** `twinccl doctor` on this machine, and on machines that the echoing C library pretends to be. */
import { afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { compiler } from "../../support/c-library.ts";
import { type Echo, echoLibrary } from "../backends/nccl/sys/echo.ts";
import { cli } from "./harness.ts";

afterEach(() => {
  vi.unstubAllEnvs();
});

const columns = (text: string, first: string): string[] =>
  text
    .split("\n")
    .find((line) => line.startsWith(`${first} `))
    ?.split(/ {2,}/) ?? [];

describe("without libraries", () => {
  function nowhere(): void {
    vi.stubEnv("TWINCCL_CUDART_LIBRARY", "/nowhere/libcudart.so");
    vi.stubEnv("TWINCCL_NCCL_LIBRARY", "/nowhere/libnccl.so");
    vi.stubEnv("TWINCCL_NVML_LIBRARY", "/nowhere/libnvml.so");
  }

  test("doctor reports their absence, with every path, and exits with 0", async () => {
    nowhere();
    const { status, out, err } = await cli("doctor");
    expect({ status, err }).toEqual({ status: 0, err: "" });
    for (const [library, path, variable] of [
      ["libcudart", "/nowhere/libcudart.so", "TWINCCL_CUDART_LIBRARY"],
      ["libnccl", "/nowhere/libnccl.so", "TWINCCL_NCCL_LIBRARY"],
      ["libnvidia-ml", "/nowhere/libnvml.so", "TWINCCL_NVML_LIBRARY"],
    ] as const) {
      expect(columns(out, library)).toEqual([
        library,
        path,
        variable,
        expect.stringMatching(/cannot open|no such file/i),
      ]);
    }
    expect(out).toMatch(/^missing +libcudart was not found$/m);
    expect(out).toMatch(/^missing +libnccl was not found$/m);
    expect(out).toMatch(/^GPUs +none that can be used from here$/m);
    expect(out).toMatch(/^backend nccl +no: libcudart was not found$/m);
    expect(out).toMatch(/^firstAvailable\(nccl\(\), sim\(\)\) +sim, for 1 rank$/m);
    expect(out).toMatch(/^native helper +(found: \/|absent: there is no \/)/m);
    expect(out).toMatch(/^executor cpu +yes: needs nothing$/m);
    expect(out).toMatch(/^executor wasm +(yes|no): \S/m);
    expect(out).toMatch(/^executor webgpu +(yes|no): \S/m);
  });

  test("the document has the same report", async () => {
    nowhere();
    const { status, out } = await cli("doctor --json");
    expect(status).toBe(0);
    const document = JSON.parse(out);
    expect(document).toMatchObject({
      versions: { node: process.versions.node },
      nvidia: {
        versions: { driver: null, runtime: null, nccl: null },
        gpus: [],
        problems: ["libcudart was not found", "libnccl was not found"],
      },
      backends: [
        { backend: "sim", ok: true },
        { backend: "nccl", ok: false, reason: "libcudart was not found" },
        { backend: "tcp", ok: true },
      ],
      executors: [{ executor: "cpu", ok: true }, { executor: "wasm" }, { executor: "webgpu" }],
      first_available: "sim",
    });
    expect(document.nvidia.libraries[1].trials).toEqual([
      {
        path: "/nowhere/libnccl.so",
        why: "TWINCCL_NCCL_LIBRARY",
        ok: false,
        reason: expect.any(String),
      },
    ]);
  });
});

const reason = "missing" in compiler ? ` (skipped: ${compiler.missing})` : "";

describe.skipIf(reason !== "")(`on machines of the echoing library${reason}`, () => {
  let echo: Echo;
  beforeAll(async () => {
    echo = await echoLibrary();
  });
  afterEach(() => echo.machine(0));

  function here(devices: number, switched = false): void {
    for (const library of ["CUDART", "NCCL", "NVML", "CUDA"]) {
      vi.stubEnv(`TWINCCL_${library}_LIBRARY`, echo.path);
    }
    for (const variable of ["NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE"])
      vi.stubEnv(variable, undefined);
    echo.begin();
    echo.machine(devices, switched);
  }

  test("GPUs are listed with the answers of CUDA and NVML, and with peer access", async () => {
    here(3);
    const { status, out } = await cli("doctor");
    expect(status).toBe(0);
    expect(columns(out, "libnccl")).toEqual([
      "libnccl",
      echo.path,
      "TWINCCL_NCCL_LIBRARY",
      "loaded",
    ]);
    expect(out).toMatch(/^driver +999\.88\.3, for CUDA up to none$/m);
    expect(out).toMatch(/^NCCL +2\.28\.9$/m);
    expect(out).toContain(
      [
        "GPU  bus id        compute  memory    NVLinks  name",
        "0    0000:10:00.0  9.0      80.0 GiB  2        NVIDIA Echo",
        "1    0000:11:00.0  9.0      80.0 GiB  2        NVIDIA Echo",
        "2    0000:12:00.0  9.0      80.0 GiB  2        NVIDIA Echo",
        "",
        "link  0     1     2",
        "0     X     NODE  NV1",
        "1     NODE  X     NV1",
        "2     NV1   NV1   X",
        "",
        "X     the GPU itself",
        "NV#   # NVLinks, to each other or to NVSwitches",
        "NODE  PCIe, through several host bridges of one NUMA node",
        "",
        "reaches  0    1    2",
        "0        .    no   P2P",
        "1        no   .    P2P",
        "2        P2P  P2P  .",
      ].join("\n"),
    );
    expect(out).toMatch(/^NVLS +off in worlds of nccl\(\): .* \(these GPUs have no multicast\)$/m);
    expect(out).toMatch(/^P2P +2 of 3 pairs of GPUs reach each other's memory$/m);
    expect(out).not.toMatch(/^missing/m);
    expect(out).toMatch(/^backend nccl +yes: NCCL 2\.28\.9, 3 GPUs$/m);
    expect(out).toMatch(/^firstAvailable.* +nccl, for 3 ranks$/m);
  });

  test("GPUs on NVSwitches are connected by as many links as both have", async () => {
    here(2, true);
    vi.stubEnv("NCCL_NVLS_ENABLE", "0");
    vi.stubEnv("NCCL_P2P_DISABLE", "1");
    const { out } = await cli("doctor");
    expect(out).toContain(["link  0    1", "0     X    NV2", "1     NV2  X", ""].join("\n"));
    expect(out).toMatch(
      /^NVLS +off: NCCL_NVLS_ENABLE=0 \(these GPUs have multicast\); .* is refused$/m,
    );
    expect(out).toMatch(
      /^P2P +off: NCCL_P2P_DISABLE=1 \(no pairs of GPUs reach each other's memory\)$/m,
    );
    const { nvidia } = JSON.parse((await cli("doctor --json")).out);
    expect(nvidia).toMatchObject({
      nvls: "off: NCCL_NVLS_ENABLE=0 (these GPUs have multicast); nccl({ nvls: true }) is refused",
      p2p: "off: NCCL_P2P_DISABLE=1 (no pairs of GPUs reach each other's memory)",
      gpus: [
        { index: 0, nvlinks: 2, links: ["X", "NV2"], multicast: true },
        { index: 1, nvlinks: 2, links: ["NV2", "X"], multicast: true },
      ],
    });
  });

  test("a machine without a visible GPU is reported", async () => {
    here(0);
    const { out } = await cli("doctor");
    expect(out).toMatch(/^missing +no GPU is visible$/m);
    expect(out).toMatch(/^libcuda +not looked for$/m);
    expect(out).toMatch(/asks for it$/m);
    expect(out).not.toMatch(/^P2P/m);
    expect(out).toMatch(/^firstAvailable.* +sim, for 1 rank$/m);
  });

  test("a value that NVML lacks is unknown, and a refusal of CUDA is named", async () => {
    here(2);
    vi.stubEnv("TWINCCL_NVML_LIBRARY", "/nowhere/libnvml.so");
    vi.stubEnv("TWINCCL_CUDA_LIBRARY", "/nowhere/libcuda.so");
    vi.stubEnv("NCCL_NVLS_ENABLE", "1");
    const { out } = await cli("doctor");
    expect(out).toMatch(/^0 +0000:10:00\.0 +9\.0 +unknown +unknown +unknown$/m);
    expect(out).toMatch(/^link +0 +1\n0 +X +unknown\n1 +unknown +X\n\nX +the GPU itself\n\n/m);
    expect(out).toMatch(
      /^NVLS +NCCL_NVLS_ENABLE=1, which nccl\(\) changes to 0 .* \(whether there is multicast is unknown\)$/m,
    );
    echo.begin({ status: 35 });
    const refused = await cli("doctor");
    expect(refused.status).toBe(0);
    expect(refused.out).toMatch(/^missing +cudaGetDeviceCount: cudaErrorNumber35 \(35\)/m);
    expect(refused.out).toMatch(/^missing +ncclGetVersion: /m);
  });
});

// The last test: modules that are loaded afresh name their types to koffi a second time.
test("a missing koffi is named once, and no library is searched", async () => {
  vi.resetModules();
  vi.doMock("koffi", () => {
    throw new Error("Cannot find package 'koffi'");
  });
  const fresh = await import("./harness.ts");
  const { status, out } = await fresh.cli("doctor");
  expect(status).toBe(0);
  expect(out.match(/^missing +the package koffi cannot be loaded/gm)).toHaveLength(1);
  expect(out).toMatch(/^libcudart +not looked for$/m);
  expect(out).toMatch(/^backend nccl +no: the package koffi cannot be loaded/m);
});
