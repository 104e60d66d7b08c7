/** The GPUs that are visible to this process, and the GPU and the stream of each rank. */
import type { OpenRequest } from "../../api/backend-entry.ts";
import { firstLine } from "../../api/error-text.ts";
import { BackendUnavailableError, InvalidArgumentError } from "../../api/index.ts";
import type { RankPlacement } from "./device/device.ts";
import { type Libraries, loadLibraries } from "./discovery/libraries.ts";
import { type NcclOptions, streamsOf } from "./options.ts";
import { CudaError } from "./result/errors.ts";
import { NcclSession } from "./session.ts";

/** The libraries, and the number of devices that are visible to them. */
export async function visibleDevices(
  options: NcclOptions,
  load = loadLibraries,
): Promise<{ readonly libraries: Libraries; readonly visible: number }> {
  const libraries = await load({
    nccl: options.ncclLibrary,
    cudart: options.cudartLibrary,
  });
  return { libraries, visible: countDevices(libraries) };
}

/** Number of visible devices. Without a device, or with a driver that is too old, the error has the message of CUDA. */
function countDevices({ cuda }: Libraries): number {
  try {
    return cuda.deviceCount();
  } catch (cause) {
    if (!(cause instanceof CudaError)) throw cause;
    const { hint } = cause;
    throw new BackendUnavailableError(
      { headline: `nccl: ${firstLine(cause)}`, hint },
      { field: "devices", cause },
    );
  }
}

/** The libraries, and a place for every rank. */
export async function rankPlaces(
  options: NcclOptions,
  request: OpenRequest,
): Promise<{ readonly libraries: Libraries; readonly places: readonly RankPlacement[] }> {
  const { libraries, visible } = await visibleDevices(options);
  const places = placesFor(options, request);
  const { size } = request;
  const devices = places.map(({ device }) => device);
  if (devices.some((device) => device >= visible)) {
    throw new BackendUnavailableError(
      {
        headline: `nccl: ${size} ranks need devices ${devices.join(", ")}, but ${visible} are visible`,
        hint: "one GPU per rank; look at CUDA_VISIBLE_DEVICES, or use fewer ranks",
      },
      { field: "devices", size },
    );
  }
  return { libraries, places };
}

/**
 * The GPU and stream of every rank: as in the options, or GPU r for rank r. In a rebuilt world the survivors keep
 * theirs.
 *
 * @throws InvalidArgumentError for options that name another number of places than there are ranks.
 *
 * @internal
 */
export function placesFor(
  options: NcclOptions,
  { size, rebuilt }: OpenRequest,
): readonly RankPlacement[] {
  if (rebuilt?.session instanceof NcclSession) {
    const { session, ranks } = rebuilt;
    return ranks.map((rank) => session.place(rank));
  }
  const { devices = Array.from({ length: size }, (_, rank) => rank) } = options;
  assertLength("devices", devices, size);
  const streams = streamsOf(options);
  if (streams !== undefined) assertLength("streams", streams, size);
  return devices.map((device, rank) => ({ device, stream: streams?.[rank] }));
}

function assertLength(field: "devices" | "streams", given: readonly unknown[], size: number): void {
  if (given.length === size) return;
  throw new InvalidArgumentError(
    {
      headline: `nccl: ${field}: found ${given.length}, a world of ${size} ranks needs ${size}`,
    },
    { field, size },
  );
}
