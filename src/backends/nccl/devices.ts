/** The GPUs that this process sees, and those that a world gets. */
import {
  BackendUnavailableError,
  type InvalidArgumentError,
  type OpenRequest,
} from "../../api/index.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import type { Place } from "./device/device.ts";
import { type Libraries, loadLibraries } from "./discovery/libraries.ts";
import type { NcclOptions } from "./options.ts";
import { placesFor } from "./places.ts";
import { CudaError } from "./result/errors.ts";

/** The libraries, and how many devices they see. */
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

/** CUDA's own words where it has none, or a driver that is too old for it. */
function countDevices({ cuda }: Libraries): number {
  try {
    return cuda.deviceCount();
  } catch (cause) {
    if (!(cause instanceof CudaError)) throw cause;
    const { message, hint } = cause;
    throw new BackendUnavailableError(
      { headline: `nccl: ${message.split("\n", 1)[0]}`, hint },
      { field: "devices", cause },
    );
  }
}

/** The libraries, and a place for every rank. */
export async function rankPlaces(
  options: NcclOptions,
  request: OpenRequest,
): Promise<{ readonly libraries: Libraries; readonly places: readonly Place[] }> {
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

/** Refuses what is no deadline. */
export function assertTimeout(timeoutMs: unknown): void {
  if (typeof timeoutMs === "number" && timeoutMs > 0) return;
  throw invalid(
    "nccl",
    "timeoutMs",
    textOf(timeoutMs),
    "a number above 0",
    "milliseconds; leave it out for calls without a deadline, or give single calls one",
  );
}

/** Refuses ways of comparing calls that there are not. */
export function assertCompareCalls(compareCalls: unknown): void {
  if (
    compareCalls === undefined ||
    compareCalls === "off" ||
    compareCalls === "once" ||
    compareCalls === "always"
  )
    return;
  throw invalid(
    "nccl",
    "compareCalls",
    textOf(compareCalls),
    '"off", "once" or "always"',
    "leave it out and calls are not compared between processes",
  );
}

/** Refuses ways of taking arrays that there are not. */
export function assertStaging(staging: unknown): void {
  if (staging === undefined || staging === "copy") return;
  throw invalid(
    "nccl",
    "staging",
    textOf(staging),
    '"copy"',
    "leave it out to have TypedArrays refused in calls",
  );
}

/** Refuses lists of devices that are empty, name one twice, or hold what is no device number. */
export function assertDevices(devices: readonly number[]): void {
  const seen = new Set<number>();
  const fault = (found: string): InvalidArgumentError =>
    invalid(
      "nccl",
      "devices",
      found,
      "different device numbers from 0 on",
      "leave it out for one device per rank from 0 on; CUDA_VISIBLE_DEVICES says which are seen",
    );
  if (!Array.isArray(devices) || devices.length === 0) throw fault(JSON.stringify(devices));
  for (const device of devices) {
    if (!Number.isSafeInteger(device) || device < 0) throw fault(textOf(device));
    if (seen.has(device)) throw fault(`${device} twice`);
    seen.add(device);
  }
}
