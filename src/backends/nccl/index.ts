/** The NCCL backend: real GPUs. Needs Node.js, the package koffi, libcudart and libnccl ≥ 2.18. */
import {
  type Backend,
  BackendUnavailableError,
  CommError,
  InvalidArgumentError,
  type OpenRequest,
  type Probe,
} from "../../api/index.ts";
import { type Libraries, loadLibraries, versionText } from "./libraries.ts";
import { NcclSession } from "./session.ts";
import type { ConfigFields } from "./sys/layouts.ts";

export { CudaError, type NativeFailure, NcclError } from "./result/errors.ts";

/** Options of `nccl`. */
export interface NcclOptions {
  /** CUDA devices, by rank; 0..size-1 when left out. */
  readonly devices?: readonly number[];
  /** Path of libnccl; else `TWINCCL_NCCL_LIBRARY`, the loader's path, CUDA's folders, Python's wheels. */
  readonly ncclLibrary?: string;
  /** Path of libcudart; else `TWINCCL_CUDART_LIBRARY` and the same places. */
  readonly cudartLibrary?: string;
  /** In-switch reduction, whose bits cannot be predicted; off unless asked for. */
  readonly nvls?: boolean;
}

/**
 * Real GPUs through NVIDIA's NCCL, one GPU per rank.
 *
 * @throws InvalidArgumentError for an option that makes no sense.
 * @example
 * const world = await createWorld({ backend: nccl(), size: 8 });
 */
export function nccl(options: NcclOptions = {}): Backend {
  const { devices } = options;
  if (devices !== undefined) assertDevices(devices);
  return {
    name: "nccl",
    probe: (request) => probe(options, request),
    async open(request) {
      const { libraries, found } = await findDevices(options, request);
      const config: ConfigFields = {};
      return new NcclSession(libraries, { devices: found, config }, request.name);
    },
  };
}

async function probe(options: NcclOptions, request: OpenRequest): Promise<Probe> {
  try {
    const { libraries, found } = await findDevices(options, request);
    return { ok: true, reason: `NCCL ${versionText(libraries.ncclVersion)}, ${found.length} GPUs` };
  } catch (error) {
    if (!(error instanceof CommError)) throw error;
    return { ok: false, reason: error.message.split("\n")[0] ?? "" };
  }
}

/** The libraries, and a device for every rank. */
async function findDevices(
  options: NcclOptions,
  { size }: OpenRequest,
): Promise<{ readonly libraries: Libraries; readonly found: readonly number[] }> {
  // NCCL reads this once, before its first communicator; what it reduces in the switch cannot be predicted.
  if (options.nvls !== true) process.env["NCCL_NVLS_ENABLE"] = "0";
  const libraries = await loadLibraries({
    nccl: options.ncclLibrary,
    cudart: options.cudartLibrary,
  });
  const visible = libraries.cuda.deviceCount();
  const found = options.devices ?? Array.from({ length: size }, (_, rank) => rank);
  if (found.length !== size) {
    throw new InvalidArgumentError(
      { headline: `nccl: devices: found ${found.length}, a world of ${size} ranks needs ${size}` },
      { field: "devices", size },
    );
  }
  const unknown = found.filter((device) => device >= visible);
  if (unknown.length > 0) {
    throw new BackendUnavailableError(
      {
        headline: `nccl: ${size} ranks need devices ${found.join(", ")}, but ${visible} are visible`,
        hint: "one GPU per rank; look at CUDA_VISIBLE_DEVICES, or use fewer ranks",
      },
      { field: "devices", size },
    );
  }
  return { libraries, found };
}

function assertDevices(devices: readonly number[]): void {
  const seen = new Set<number>();
  const fault = (found: string): InvalidArgumentError =>
    new InvalidArgumentError(
      { headline: `nccl: devices: found ${found}, needs different device numbers from 0 on` },
      { field: "devices" },
    );
  if (!Array.isArray(devices) || devices.length === 0) throw fault(JSON.stringify(devices));
  for (const device of devices) {
    if (!Number.isSafeInteger(device) || device < 0) throw fault(String(device));
    if (seen.has(device)) throw fault(`${device} twice`);
    seen.add(device);
  }
}
