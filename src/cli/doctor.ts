/** `twinccl doctor`: reports this machine's devices and libraries, and the usable backends. */
import type { Probe } from "../api/backend-entry.ts";
import { alignedTable, countText } from "../api/error-text.ts";
import { CommError } from "../api/index.ts";
import {
  examine,
  type GpuReport,
  type LibraryReport,
  type MachineReport,
} from "../backends/nccl/discovery/examine.ts";
import { linkLegend } from "../backends/nccl/discovery/link-kinds.ts";
import { adapterName, findAdapter } from "../backends/sim/executors/webgpu/adapter.ts";
import { cpu, type Executor, wasm } from "../backends/sim/index.ts";
import { environment } from "../bench/index.ts";
import type { BackendTable, Command, Context } from "./context.ts";
import { parseOptions } from "./options.ts";
import { hasOneRankEach } from "./placement.ts";

const options = { json: { help: "print one JSON document instead of text" } } as const;

/** The `doctor` command. */
export const command: Command = {
  help: `Usage: twinccl doctor [--json]

Shows versions, processor and memory; every path at which NVIDIA's libraries were looked for,
and why each failed; the GPUs, what connects each pair of them (as nvidia-smi topo -m says it),
which reach each other's memory, and whether NVLS is on and could be; and for each backend, and
each executor of the simulation, whether it can be used here and why not. Runs nothing on a GPU.

  --json   ${options.json.help}

Examples:
  twinccl doctor
  twinccl doctor --json

Exit status: 0, also where there is no GPU.
`,
  run: runDoctor,
};

interface BackendReport {
  readonly backend: string;
  readonly ok: boolean;
  readonly reason: string;
}

/** Reasons of unavailable executors of the simulation, by name. WebGPU only requests its adapter, and runs no kernel. */
const executors: Readonly<Record<string, () => Probe | Promise<Probe>>> = {
  cpu: () => probeOf(cpu()),
  wasm: () => probeOf(wasm()),
  webgpu: async () => {
    const { info } = await findAdapter({});
    return { ok: true, reason: `adapter ${adapterName(info)}` };
  },
};

interface ExecutorReport extends Probe {
  readonly executor: string;
}

function probeOf(executor: Executor): Probe | Promise<Probe> {
  return executor.probe?.() ?? { ok: true, reason: "needs nothing" };
}

async function executorReport(executor: string): Promise<ExecutorReport> {
  try {
    const { ok, reason } = (await executors[executor]?.()) ?? { ok: false, reason: "unknown" };
    return { executor, ok, reason };
  } catch (error) {
    if (!(error instanceof CommError)) throw error;
    return { executor, ok: false, reason: error.message.split("\n")[0] ?? "" };
  }
}

async function runDoctor(args: readonly string[], context: Context): Promise<number> {
  const parsed = parseOptions(args, options, 0);
  const nvidia = await examine();
  const size = Math.max(1, nvidia.gpus.length);
  const backends: BackendReport[] = [];
  for (const [name, make] of Object.entries(await context.backends())) {
    backends.push(await backendReport(name, size, make));
  }
  const found = await Promise.all(Object.keys(executors).map(executorReport));
  const chosen = ["nccl", "sim"].find((name) =>
    backends.some(({ backend, ok }) => backend === name && ok),
  );
  const own = environment();
  if (parsed.has("json")) {
    const wasm_simd = hasWasmSimd();
    const document = {
      ...own,
      wasm_simd,
      nvidia,
      backends,
      executors: found,
      first_available: chosen ?? null,
    };
    context.out(`${JSON.stringify(document, undefined, 2)}\n`);
    return 0;
  }
  context.out(machineText(own));
  context.out(nvidiaText(nvidia));
  const answer = (ok: boolean, reason: string): string => `${ok ? "yes" : "no"}: ${reason}`;
  const rows = [
    ...backends.map(({ backend, ok, reason }) => [`backend ${backend}`, answer(ok, reason)]),
    ...found.map(({ executor, ok, reason }) => [`executor ${executor}`, answer(ok, reason)]),
  ];
  const choice = `${chosen ?? "none"}, for ${countText(size, "rank")}`;
  context.out(table([...rows, ["firstAvailable(nccl(), sim())", choice]]));
  return 0;
}

function machineText({ machine, versions, commit }: ReturnType<typeof environment>): string {
  return table([
    ["twinccl", `${versions.twinccl}, commit ${commit ?? "unknown"}`],
    ["node", `${versions.node} (V8 ${versions.v8})`],
    ["platform", `${machine.platform} ${machine.arch}`],
    ["processor", `${machine.cpu}, ${machine.cores} cores`],
    ["memory", `${(machine.memory_bytes / 2 ** 30).toFixed(1)} GiB`],
    ["wasm SIMD", hasWasmSimd() ? "yes" : "no"],
  ]);
}

function nvidiaText(report: MachineReport): string {
  const { versions, gpus, problems } = report;
  const known = (version: string | null): string => version ?? "unknown";
  const isAbsent = versions.driver === null && versions.driver_cuda === "none";
  const driver = isAbsent
    ? "none"
    : `${known(versions.driver)}, for CUDA up to ${known(versions.driver_cuda)}`;
  const rows = [
    ["driver", driver],
    ["CUDA runtime", known(versions.runtime)],
    ["NCCL", known(versions.nccl)],
    ["NVLS", report.nvls],
    ...(report.p2p === null ? [] : [["P2P", report.p2p]]),
    ["native helper", report.native_helper],
    ...problems.map((problem) => ["missing", problem]),
    ...(gpus.length === 0 ? [["GPUs", "none that can be used from here"]] : []),
  ];
  return `\n${librariesText(report.libraries)}\n${table(rows)}${gpuText(gpus)}\n`;
}

/** The use of a backend with one rank in each process. */
const eachReason = "needs nothing; one rank in each process, for connect";

async function backendReport(
  name: string,
  size: number,
  make: BackendTable[string],
): Promise<BackendReport> {
  try {
    const backend = await make({});
    const isEach = hasOneRankEach(name);
    const probe = await backend.probe({ size: isEach ? 1 : size, name: "doctor" });
    const ok = probe.ok;
    const reason = isEach && ok ? eachReason : probe.reason;
    return { backend: name, ok, reason };
  } catch (error) {
    if (!(error instanceof CommError)) throw error;
    const reason = error.message.split("\n")[0]?.replace(`backend ${name}: `, "") ?? "";
    return { backend: name, ok: false, reason };
  }
}

/** The smallest module with a SIMD instruction: a function that splats a constant and drops it. */
const simdModule = Uint8Array.of(
  ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0], // magic, version
  ...[1, 4, 1, 0x60, 0, 0], // type 0: no parameters, no results
  ...[3, 2, 1, 0], // one function of type 0
  ...[10, 9, 1, 7, 0, 0x41, 0, 0xfd, 0x0f, 0x1a, 0x0b], // i32.const 0, i8x16.splat, drop, end
);

function hasWasmSimd(): boolean {
  const { WebAssembly } = globalThis as {
    WebAssembly?: { validate(bytes: Uint8Array): boolean };
  };
  return WebAssembly?.validate(simdModule) === true;
}

function table(rows: readonly (readonly string[])[]): string {
  return alignedTable(rows)
    .map((line) => `${line}\n`)
    .join("");
}

/** All tried paths. */
function librariesText(libraries: readonly LibraryReport[]): string {
  const rows = libraries.flatMap(({ library, trials }) =>
    trials.length === 0
      ? [[library, "not looked for"]]
      : trials.map(({ path, why, reason }) => [library, path, why, reason]),
  );
  return table([["library", "path", "tried because", "outcome"], ...rows]);
}

/** The GPUs, their links, and their peer access. */
function gpuText(gpus: readonly GpuReport[]): string {
  if (gpus.length === 0) return "";
  const list = gpus.map((gpu) => [
    String(gpu.index),
    gpu.pciBusId,
    gpu.computeCapability,
    gpu.memory_bytes === null ? "unknown" : `${(gpu.memory_bytes / 2 ** 30).toFixed(1)} GiB`,
    gpu.nvlinks === null ? "unknown" : String(gpu.nvlinks),
    gpu.name ?? "unknown",
  ]);
  const head = ["GPU", "bus id", "compute", "memory", "NVLinks", "name"];
  const names = gpus.map(({ index }) => String(index));
  const links = gpus.map(({ index, links }) => [
    String(index),
    ...links.map((kind) => kind ?? "unknown"),
  ]);
  const reach = gpus.map(({ index, peers }) => [
    String(index),
    ...peers.map((reaches, peer) => (peer === index ? "." : reaches ? "P2P" : "no")),
  ]);
  return [
    table([head, ...list]),
    table([["link", ...names], ...links]),
    legendText(gpus),
    table([["reaches", ...names], ...reach]),
  ]
    .map((part) => `\n${part}`)
    .join("");
}

/** Meaning of the letters of the present links. */
function legendText(gpus: readonly GpuReport[]): string {
  const kinds = new Set(
    gpus.flatMap(({ links }) => links.map((kind) => kind?.replace(/^NV\d+$/, "NV#"))),
  );
  return table(linkLegend.filter(([letters]) => kinds.has(letters)));
}
