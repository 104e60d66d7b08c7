/** `connect` on GPUs: which rank this process is, which GPU is its own, and where it meets the others. */
import {
  BackendUnavailableError,
  InvalidArgumentError,
  type JoinRequest,
  type Session,
} from "../../api/index.ts";
import { visibleDevices } from "./devices.ts";
import type { Libraries } from "./libraries.ts";
import { openHere, openJoined, type Setup } from "./open.ts";
import type { NcclOptions } from "./options.ts";
import { streamsOf } from "./places.ts";
import { launcherEnvironment, rendezvousFor } from "./rendezvous/index.ts";

/** Joins the job that the launcher's variables describe; without any this process is a job of its own. */
export async function join(
  options: NcclOptions,
  request: JoinRequest,
  setupOf: (libraries: Libraries) => Setup,
): Promise<Session> {
  const environment = launcherEnvironment(process.env);
  const size = environment?.size ?? 1;
  if (request.size !== undefined && request.size !== size) {
    throw new InvalidArgumentError(
      {
        headline: `connect: size: found ${request.size}, but ${environment?.family ?? "no launcher"} says ${size}`,
        hint: "leave size out, or start so many processes: twinccl launch -n SIZE script.mjs",
      },
      { size, field: "size" },
    );
  }
  const device = ownDevice(options, environment?.localRank ?? 0);
  const onlyOne = size > 1 && device > 0 && showOnly(device);
  const { libraries, visible } = await visibleDevices(options);
  const index = onlyOne && visible === 1 ? 0 : device;
  if (index >= visible) {
    throw new BackendUnavailableError(
      {
        headline: `connect: rank ${environment?.rank ?? 0} is to use device ${device}, but ${visible} are visible`,
        hint: "one GPU per rank; look at CUDA_VISIBLE_DEVICES, or start fewer processes per machine",
      },
      { size, field: "devices" },
    );
  }
  const place = { device: index, stream: ownStream(options) };
  const setup = setupOf(libraries);
  if (environment === undefined || size === 1) return openHere(setup, [place], request.name);
  const { jobId, rank } = environment;
  const { timeoutMs, signal } = request;
  const membership = await rendezvousFor(environment).join({
    jobId,
    rank,
    size,
    deadlineMs: timeoutMs,
    signal,
  });
  try {
    return await openJoined(setup, place, membership, request);
  } catch (error) {
    await membership.leave();
    throw error;
  }
}

/** The device of this process: the one that was named, or that of its local rank. */
function ownDevice({ devices }: NcclOptions, localRank: number): number {
  if (devices === undefined) return localRank;
  const device = devices.length === 1 ? devices[0] : devices[localRank];
  if (device !== undefined) return device;
  throw new InvalidArgumentError(
    {
      headline: `connect: devices: found ${devices.length}, local rank ${localRank} has none of them`,
      hint: "give one device for this process, or one for every rank of this machine",
    },
    { field: "devices" },
  );
}

/** The stream of this process's rank, where the caller gave one. */
function ownStream(options: NcclOptions): bigint | undefined {
  const streams = streamsOf(options);
  if (streams === undefined || streams.length === 1) return streams?.[0];
  throw new InvalidArgumentError(
    {
      headline: `connect: streams: found ${streams.length}, needs 1: a stream is this process's alone`,
      hint: "give nccl({ stream }) in every process",
    },
    { field: "streams" },
  );
}

/**
 * Makes the device the only visible one, so that NCCL can be started on another thread, where no device is set, and be
 * left behind at a deadline. CUDA reads the variable when it is first used; where it was used before, nothing changes.
 */
function showOnly(device: number): boolean {
  const listed = process.env["CUDA_VISIBLE_DEVICES"]?.split(",").map((each) => each.trim());
  const own = listed === undefined ? String(device) : listed[device];
  if (own === undefined || own === "") return false;
  process.env["CUDA_VISIBLE_DEVICES"] = own;
  return true;
}
