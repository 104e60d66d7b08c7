/** Reports libraries, versions, GPUs and links available to NCCL, without starting a communicator or a GPU context. */

import { firstLine } from "../../../api/error-text.ts";
import { CommError } from "../../../api/index.ts";
import { type CudaDeviceCalls, cudaLibrary, deviceCalls, multicastOf } from "../result/cuda.ts";
import { communicatorCalls, ncclLibrary } from "../result/nccl.ts";
import { type NvmlCalls, nvmlCalls } from "../result/nvml.ts";
import { cudaDriverTable, cudaTable } from "../sys/cuda.ts";
import { helper } from "../sys/helper.ts";
import { ncclTable } from "../sys/nccl.ts";
import { nvmlTable } from "../sys/nvml.ts";
import type { Bound } from "../sys/prototype.ts";
import {
  firstLoadable,
  type LibraryPaths,
  librarySearches,
  type Trial,
  versionText,
} from "./libraries.ts";
import { linkKinds } from "./link-kinds.ts";

/** The search for one library. */
export interface LibraryReport {
  readonly library: "libcudart" | "libnccl" | "libnvidia-ml" | "libcuda";
  /** All tried paths, up to the one that loaded. */
  readonly trials: readonly Trial[];
}

/** One GPU. */
export interface GpuReport {
  /** CUDA's index among the visible GPUs. */
  readonly index: number;
  readonly pciBusId: string;
  /** Such as `9.0`. */
  readonly computeCapability: string;
  readonly name: string | null;
  readonly memory_bytes: number | null;
  /** Number of active NVLinks. */
  readonly nvlinks: number | null;
  /** True for each GPU with accessible memory, by index. */
  readonly peers: readonly boolean[];
  /**
   * Link to each GPU, by index, in the notation of `nvidia-smi topo -m`. That is `NV` and the number of NVLinks, `PIX`, `PXB`,
   * `PHB`, `NODE` or `SYS`; `X` for itself, null if unknown.
   */
  readonly links: readonly (string | null)[];
  /** True if the GPU supports multicast objects, which NVLS needs; null if unknown. */
  readonly multicast: boolean | null;
}

/** The machine as the NCCL backend sees it. */
export interface MachineReport {
  readonly libraries: readonly LibraryReport[];
  readonly versions: {
    readonly driver: string | null;
    /** Newest CUDA version supported by the driver. */
    readonly driver_cuda: string | null;
    readonly runtime: string | null;
    readonly nccl: string | null;
  };
  readonly gpus: readonly GpuReport[];
  /** State of in-switch reduction (NVLS): NCCL's setting, and the support of the GPUs. */
  readonly nvls: string;
  /** Peer access between GPUs, and NCCL's permission to use it; null for fewer than two GPUs. */
  readonly p2p: string | null;
  /** Path of the native helper, or the reason for its absence and the effects. */
  readonly native_helper: string;
  /** Reasons why GPUs cannot be used; empty if they can. */
  readonly problems: readonly string[];
}

/** Examines the machine; missing parts and failures are part of the report. */
export async function examine(
  paths: LibraryPaths = {},
  env: NodeJS.ProcessEnv = process.env,
): Promise<MachineReport> {
  const problems: string[] = [];
  const attempt = async <T>(body: () => T | Promise<T>): Promise<T | undefined> => {
    try {
      return await body();
    } catch (error) {
      if (!(error instanceof CommError)) throw error;
      const text = firstLine(error);
      if (!problems.includes(text)) problems.push(text);
      return undefined;
    }
  };
  const searches = librarySearches(paths);
  const trials = {
    cudart: [] as Trial[],
    nccl: [] as Trial[],
    nvml: [] as Trial[],
    cuda: [] as Trial[],
  };
  const cudart = await attempt(() => firstLoadable(searches.cudart, cudaTable, trials.cudart));
  const libnccl = await attempt(() => firstLoadable(searches.nccl, ncclTable, trials.nccl));
  const libnvml = await attempt(() => firstLoadable(searches.nvml, nvmlTable, trials.nvml));
  if (trials.cudart.length > 0 && cudart === undefined) problems.push("libcudart was not found");
  if (trials.nccl.length > 0 && libnccl === undefined) problems.push("libnccl was not found");
  const nvml = libnvml && nvmlCalls(libnvml);
  const cuda = cudart && (await attempt(() => deviceCalls(cudaLibrary(cudart))));
  const versions = cuda && (await attempt(() => cuda.versions()));
  const count = cuda && (await attempt(() => cuda.deviceCount()));
  // Counting the devices has loaded and initialised the driver.
  const driverLibrary =
    (count ?? 0) > 0
      ? await attempt(() => firstLoadable(searches.cuda, cudaDriverTable, trials.cuda))
      : undefined;
  const gpus =
    cuda && count !== undefined
      ? ((await attempt(() => gpusOf(cuda, count, nvml, driverLibrary))) ?? [])
      : [];
  const code = libnccl && (await attempt(() => communicatorCalls(ncclLibrary(libnccl)).version()));
  const driver = nvml?.driver() ?? null;
  nvml?.shutdown();
  if (count === 0) problems.push("no GPU is visible");
  return {
    libraries: [
      { library: "libcudart", trials: trials.cudart },
      { library: "libnccl", trials: trials.nccl },
      { library: "libnvidia-ml", trials: trials.nvml },
      { library: "libcuda", trials: trials.cuda },
    ],
    versions: {
      driver,
      driver_cuda: versions === undefined ? null : cudaVersionText(versions.driver),
      runtime: versions === undefined ? null : cudaVersionText(versions.runtime),
      nccl: code === undefined ? null : versionText(code),
    },
    gpus,
    nvls: nvlsState(env, gpus),
    p2p: p2pState(env, gpus),
    native_helper: await helperState(env),
    problems,
  };
}

function gpusOf(
  cuda: CudaDeviceCalls,
  count: number,
  nvml: NvmlCalls | undefined,
  driver: Bound<typeof cudaDriverTable> | undefined,
): GpuReport[] {
  const indexes = Array.from({ length: count }, (_, index) => index);
  const found = indexes.map((index) => {
    const pciBusId = cuda.pciBusId(index);
    const { name, totalBytes, links } = nvml?.device(pciBusId) ?? {};
    return { index, pciBusId, name, totalBytes, links };
  });
  const busId = (index: number): string => found[index]?.pciBusId ?? "";
  const kinds = linkKinds(found, (one, other) => nvml?.ancestor(busId(one), busId(other)));
  return found.map(({ index, pciBusId, name = null, totalBytes = null, links }) => ({
    index,
    pciBusId,
    computeCapability: cuda.computeCapability(index),
    name,
    memory_bytes: totalBytes,
    nvlinks: links?.length ?? null,
    peers: indexes.map((peer) => peer !== index && cuda.canAccessPeer(index, peer)),
    links: kinds[index] ?? [],
    multicast: (driver && multicastOf(driver, index)) ?? null,
  }));
}

/** `13.0` for 13000; 0 means none. */
function cudaVersionText(code: number): string {
  return code === 0 ? "none" : `${Math.floor(code / 1000)}.${Math.floor((code % 1000) / 10)}`;
}

async function helperState(env: NodeJS.ProcessEnv): Promise<string> {
  const found = await helper(env);
  if (typeof found !== "string") return `found: ${found.path}`;
  const effects =
    "repeated calls take longer, and a lost rank may keep the process from ending while NCCL starts";
  return `absent: ${found}; ${effects}`;
}

/** The properties of a GPU that the texts below describe. */
type Gpu = Pick<GpuReport, "index" | "peers" | "multicast">;

/**
 * State of in-switch reduction (NVLS): NCCL's setting, and the support of the GPUs.
 *
 * @internal
 */
export function nvlsState(env: NodeJS.ProcessEnv, gpus: readonly Gpu[]): string {
  const able = multicastText(gpus);
  const suffix = able === "" ? "" : ` (${able})`;
  const variable = env["NCCL_NVLS_ENABLE"];
  if (variable === undefined || variable === "") {
    return `off in worlds of nccl(): it sets NCCL_NVLS_ENABLE=0 unless nccl({ nvls: true }) asks for it${suffix}`;
  }
  if (variable === "0") {
    return `off: NCCL_NVLS_ENABLE=0${suffix}; nccl({ nvls: true }) is refused`;
  }
  return `NCCL_NVLS_ENABLE=${variable}, which nccl() changes to 0 unless nccl({ nvls: true }) asks for it${suffix}`;
}

function multicastText(gpus: readonly Gpu[]): string {
  if (gpus.length === 0) return "";
  const able = gpus.filter(({ multicast }) => multicast === true);
  if (able.length === gpus.length) return `${subjectText(gpus)} multicast`;
  if (able.length > 0) {
    return `of these GPUs ${able.map(({ index }) => index).join(", ")} have multicast`;
  }
  const known = gpus.every(({ multicast }) => multicast === false);
  return known ? `${subjectText(gpus)} no multicast` : "whether there is multicast is unknown";
}

function subjectText(gpus: readonly Gpu[]): string {
  return gpus.length === 1 ? "this GPU has" : "these GPUs have";
}

/**
 * Peer access between GPUs, and NCCL's permission to use it; null for fewer than two GPUs.
 *
 * @internal
 */
export function p2pState(env: NodeJS.ProcessEnv, gpus: readonly Gpu[]): string | null {
  if (gpus.length < 2) return null;
  const pairs = (gpus.length * (gpus.length - 1)) / 2;
  const reaching = gpus.flatMap(({ index, peers }) =>
    gpus.filter((peer) => peer.index > index && peers[peer.index] && peer.peers[index]),
  ).length;
  const count = reaching === pairs ? "all" : reaching === 0 ? "no" : `${reaching} of ${pairs}`;
  const found = `${count} pairs of GPUs reach each other's memory`;
  const [disable, level] = [env["NCCL_P2P_DISABLE"], env["NCCL_P2P_LEVEL"]];
  if (disable !== undefined && disable !== "0")
    return `off: NCCL_P2P_DISABLE=${disable} (${found})`;
  return level === undefined ? found : `as far as NCCL_P2P_LEVEL=${level} (${found})`;
}
