/** The NCCL backend: real GPUs. Needs Node.js, the package koffi, libcudart and libnccl ≥ 2.18. */
import { type Backend, CommError, type OpenRequest, type Probe } from "../../api/index.ts";
import { assertDevices, devicesFor } from "./devices.ts";
import { join } from "./join.ts";
import { versionText } from "./libraries.ts";
import { openHere } from "./open.ts";
import type { NcclOptions } from "./options.ts";

export type { NcclOptions } from "./options.ts";
export { CudaError, type NativeFailure, NcclError } from "./result/errors.ts";

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
      const { libraries, devices: found } = await devicesFor(options, request);
      return openHere({ libraries, config: {}, timeoutMs: options.timeoutMs }, found, request.name);
    },
    join: (request) => join(options, request),
  };
}

async function probe(options: NcclOptions, request: OpenRequest): Promise<Probe> {
  try {
    const { libraries, devices: found } = await devicesFor(options, request);
    return { ok: true, reason: `NCCL ${versionText(libraries.ncclVersion)}, ${found.length} GPUs` };
  } catch (error) {
    if (!(error instanceof CommError)) throw error;
    return { ok: false, reason: error.message.split("\n")[0] ?? "" };
  }
}
