/** Finding and loading libraries: what is tried, what is refused, and what an older library lacks. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BackendUnavailableError } from "twinccl";
import { nccl } from "twinccl/nccl";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { examine } from "../../../../../src/backends/nccl/discovery/examine.ts";
import {
  candidatesOf,
  loadLibraries,
  versionText,
} from "../../../../../src/backends/nccl/discovery/libraries.ts";
import { ncclCalls } from "../../../../../src/backends/nccl/result/nccl.ts";
import { runsBeforeList } from "../../../../../src/backends/nccl/sys/call-list.ts";
import { ncclConfig, ncclSimInfo } from "../../../../../src/backends/nccl/sys/layouts.ts";
import { ncclTable } from "../../../../../src/backends/nccl/sys/nccl.ts";
import { bind } from "../../../../../src/backends/nccl/sys/prototype.ts";
import { compiler } from "../../../../support/c-library.ts";
import { reason as helperReason } from "./built-helper.ts";
import { type Echo, echoLibrary } from "./echo.ts";

const reason = "missing" in compiler ? ` (skipped: ${compiler.missing})` : "";

describe("the path of a library", () => {
  const search = {
    names: ["libtwin.so.2", "libtwin.so"],
    option: undefined,
    variable: "TWIN_LIBRARY",
    wheels: [],
  };
  const home = mkdtempSync(join(tmpdir(), "twinccl-home-"));
  afterAll(() => rmSync(home, { recursive: true }));

  test("is the option alone, then the variable", () => {
    const env = { TWIN_LIBRARY: "/by/variable.so" };
    expect(candidatesOf({ ...search, option: "/by/option.so" }, env)).toEqual([
      { path: "/by/option.so", why: "option" },
    ]);
    expect(candidatesOf(search, env)).toEqual([{ path: "/by/variable.so", why: "TWIN_LIBRARY" }]);
  });

  test("else that of the loader, then files in CUDA's folders", () => {
    mkdirSync(join(home, "lib64"));
    for (const file of ["libtwin.so", "libtwin.so.2", "libother.so"]) {
      writeFileSync(join(home, "lib64", file), "");
    }
    mkdirSync(join(home, "other", "lib"), { recursive: true });
    writeFileSync(join(home, "other", "lib64"), "no folder");
    const env = { CUDA_HOME: home, CUDA_PATH: join(home, "other"), TWIN_LIBRARY: "" };
    const all = candidatesOf(search, env);
    expect(all.filter(({ why }) => why !== "usual folder")).toEqual([
      { path: "libtwin.so.2", why: "loader path" },
      { path: "libtwin.so", why: "loader path" },
      { path: join(home, "lib64", "libtwin.so.2"), why: "CUDA folder" },
      { path: join(home, "lib64", "libtwin.so"), why: "CUDA folder" },
      { path: join(home, "lib"), why: "CUDA folder", fault: "no such folder" },
      {
        ...{ path: join(home, "other", "lib64"), why: "CUDA folder" },
        fault: expect.stringContaining("ENOTDIR"),
      },
      {
        ...{ path: join(home, "other", "lib"), why: "CUDA folder" },
        fault: "holds no libtwin.so.2, libtwin.so",
      },
    ]);
    // No machine has such a library there.
    const usual = all.filter(({ why }) => why === "usual folder");
    expect(usual.map(({ path }) => path)).toContain("/usr/local/cuda/lib64");
    for (const { fault } of usual) expect(fault).toMatch(/^no such folder$|^holds no /);
  });
});

test.each([
  [2304, "2.3.4"],
  [2804, "2.8.4"],
  [20906, "2.9.6"],
  [22809, "2.28.9"],
  [30102, "3.1.2"],
])("NCCL's version code %i is %s", (code, text) => {
  expect(versionText(code)).toBe(text);
});

describe("a library that does not load", () => {
  afterEach(() => vi.unstubAllEnvs());

  test("fails a probe, which changes no variable", async () => {
    vi.stubEnv("TWINCCL_CUDART_LIBRARY", "/nowhere/libcudart.so.12");
    vi.stubEnv("NCCL_NVLS_ENABLE", undefined);
    const before = { ...process.env };
    const probe = await nccl().probe({ size: 2, name: "probed" });
    expect(probe).toEqual({ ok: false, reason: "libcudart was not found" });
    expect({ ...process.env }).toEqual(before);
  });

  test("is refused with its path, its origin, and the loader's message", async () => {
    vi.stubEnv("TWINCCL_CUDART_LIBRARY", "/nowhere/libcudart.so.12");
    const error = await loadLibraries({}).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(BackendUnavailableError);
    expect((error as Error).message).toMatch(
      /^libcudart was not found\n +\/nowhere\/libcudart\.so\.12 +TWINCCL_CUDART_LIBRARY +\S.*\n.*TWINCCL_CUDART_LIBRARY/s,
    );
    const probe = await nccl({ cudartLibrary: "/elsewhere/x.so" }).probe({
      size: 1,
      name: "world",
    });
    expect(probe).toEqual({ ok: false, reason: "libcudart was not found" });
  });

  test("leaves every other attempt on record", async (context) => {
    const found = await loadLibraries({}).catch((caught: unknown) => caught);
    if (!(found instanceof BackendUnavailableError)) {
      context.skip("this machine has the libraries");
      return;
    }
    const names = found.message.startsWith("libnccl")
      ? ["libnccl.so.2", "libnccl.so"]
      : ["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"];
    for (const name of names) {
      const row = new RegExp(`^ +${name.replaceAll(".", "\\.")} +loader path +\\S`, "m");
      expect(found.message).toMatch(row);
    }
    expect(found.message).toMatch(/^ +\/usr\/local\/cuda\/lib64 +usual folder +\S/m);
    expect(found.message).toMatch(/ +pip wheel +\S/);
  });

  test("is tried again the next time", async () => {
    const paths = { cudart: "/nowhere/again.so" };
    const first = await loadLibraries(paths).catch((caught: unknown) => caught);
    const second = await loadLibraries(paths).catch((caught: unknown) => caught);
    expect(second).not.toBe(first);
  });
});

describe.skipIf(reason !== "")(`loaded libraries${reason}`, () => {
  let echo: Echo;
  let old: Echo;
  beforeAll(async () => {
    echo = await echoLibrary();
    old = await echoLibrary(21700);
  });

  test("load once for the same paths, with their version", async () => {
    const paths = { nccl: echo.path, cudart: echo.path };
    const libraries = await loadLibraries(paths);
    expect(libraries.ncclVersion).toBe(22809);
    expect(await loadLibraries({ ...paths })).toBe(libraries);
  });

  test("make calls without the helper where it is off", async () => {
    vi.stubEnv("TWINCCL_NATIVE_HELPER", "0");
    try {
      const { nccl } = await loadLibraries({ nccl: echo.path, cudart: `/${echo.path}` });
      const sequence = nccl.sequence([[{ name: "send", args: [1n, 2, 3, 4, 5n, 6n] }]]);
      for (let run = 0; run < 2 * runsBeforeList; run++) {
        echo.begin();
        sequence.run();
        expect(echo.text()).toBe("ncclSend buffer 1 count 2 type 3 peer 4 comm 5 stream 6");
      }
    } finally {
      vi.unstubAllEnvs();
    }
  });

  test("a report states whether the native helper is there, and what its absence costs", async () => {
    const paths = { nccl: echo.path, cudart: echo.path };
    const off = await examine(paths, { TWINCCL_NATIVE_HELPER: "0" });
    expect(off.native_helper).toMatch(
      /^absent: TWINCCL_NATIVE_HELPER=0; repeated calls take longer/,
    );
    const usual = await examine(paths, {});
    expect(usual.native_helper).toMatch(
      helperReason === "" ? /^found: .*\/native\/linux-\w+\/helper\.so$/ : /^absent: there is no /,
    );
  });

  test("a libnccl that is missing is named after the libcudart that was found", async () => {
    const error = loadLibraries({ cudart: echo.path, nccl: "/nowhere/libnccl.so.2" });
    await expect(error).rejects.toThrow(/^libnccl was not found/);
    await expect(error).rejects.toThrow(echo.path);
    await expect(error).rejects.toThrow(/\/nowhere\/libnccl\.so\.2 +option +\S/);
  });

  test("a file that is another library is skipped, like one that does not load", async () => {
    const error = loadLibraries({ cudart: echo.path, nccl: "libm.so.6" });
    await expect(error).rejects.toThrow(/^libnccl was not found/);
    const text = /option +another library: it has no function of libnccl\.so\.2/;
    await expect(error).rejects.toThrow(text);
  });

  test("an old NCCL is refused with both versions", async () => {
    const error = loadLibraries({ cudart: echo.path, nccl: old.path });
    await expect(error).rejects.toBeInstanceOf(BackendUnavailableError);
    await expect(error).rejects.toThrow(
      /^NCCL 2\.17\.0 is older than 2\.18\.0, the oldest that works here/,
    );
  });

  test("a function that an old library lacks is named with the version that brought it", async () => {
    const calls = ncclCalls(await bind(old.path, ncclTable));
    expect(calls).toMatchObject({ hasWindows: false, hasAllToAll: false });
    const slot = new BigUint64Array(1);
    const lacking: readonly [() => unknown, string, string][] = [
      [() => calls.split(1n, 0, 0, slot, {}), "ncclCommSplit", "2.18"],
      [() => calls.memAlloc(8), "ncclMemAlloc", "2.19"],
      [
        () => calls.sequence([[{ name: "alltoAll", args: [1n, 2n, 3, 0, 4n, 5n] }]]),
        ...(["ncclAlltoAll", "2.28"] as const),
      ],
      [() => calls.memFree(1n), "ncclMemFree", "2.19"],
      [() => calls.estimateUs(() => undefined), "ncclGroupSimulateEnd", "2.22"],
      [() => calls.registerWindow(1n, 2n, 3, slot), "ncclCommWindowRegister", "2.27"],
      [() => calls.deregisterWindow(1n, 2n), "ncclCommWindowDeregister", "2.27"],
    ];
    for (const [call, symbol, since] of lacking) {
      expect(call).toThrow(BackendUnavailableError);
      expect(call).toThrow(`the loaded library has no function ${symbol}`);
      expect(call).toThrow(`since version ${since}`);
    }
    old.begin();
    expect(() => calls.estimateUs(() => undefined)).toThrow();
    expect(old.calls(), "nothing is begun that cannot be ended").toBe(0);
  });

  test("structures have the layout of the C compiler", () => {
    const words = echo.layouts().split(" ");
    const layout = Object.fromEntries(
      Array.from({ length: words.length / 2 }, (_, i) => [words[2 * i], Number(words[2 * i + 1])]),
    );
    const { uniqueId, config, simInfo, estimatedTime, netName, commName, ...fields } = layout;
    expect(uniqueId).toBe(128);
    expect(ncclSimInfo().length).toBe(simInfo);
    const info = ncclSimInfo();
    expect(new DataView(info.buffer).getFloat32(estimatedTime as number, true)).toBe(-1);
    const value = Object.fromEntries(Object.keys(fields).map((field, i) => [field, 1000 + i]));
    const bytes = ncclConfig(value);
    expect(bytes.length).toBe(config);
    const view = new DataView(bytes.buffer);
    for (const [field, offset] of Object.entries(fields)) {
      expect(view.getInt32(offset as number, true), field).toBe(value[field]);
    }
    for (const pointer of [netName, commName]) {
      expect(view.getBigUint64(pointer as number, true)).toBe(0n);
    }
  });
});
