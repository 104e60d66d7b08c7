/** `connect` on GPUs: the rank, the GPU and the rendezvous of this process. */

import type { JoinRequest, Session } from "../../api/backend-entry.ts";
import { BackendUnavailableError, InvalidArgumentError } from "../../api/index.ts";
import { invalid } from "../../api/option-kinds.ts";
import { launcherEnvironment, launcherVariables, rendezvousFor } from "../../job/launchers.ts";
import { visibleDevices } from "./devices.ts";
import type { Libraries } from "./discovery/libraries.ts";
import { openJoined, openLocal, type Setup } from "./open.ts";
import { type NcclOptions, streamsOf } from "./options.ts";
import { disableRuntimeConnect } from "./process/start-variables.ts";
import {
  type ProcessDevice,
  processDevice,
  type RequestedDevice,
} from "./process/visible-devices.ts";

/** The process's role for its GPUs. */
export interface DeviceAccess {
  readonly own: ProcessDevice;
  readonly findDevices: typeof visibleDevices;
}

/** Joins the job that the launcher's variables describe; without any this process is a job of its own. */
export async function join(
  options: NcclOptions,
  request: JoinRequest,
  setupOf: (libraries: Libraries, size: number) => Setup,
  { own, findDevices }: DeviceAccess = { own: processDevice, findDevices: visibleDevices },
): Promise<Session> {
  const environment = launcherEnvironment(launcherVariables());
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
  const requested = requestedDevice(options, environment?.localRank ?? 0);
  if (size > 1) {
    own.restrictTo(requested);
    disableRuntimeConnect();
  }
  const { libraries, visible } = await findDevices(options);
  const device = own.indexAmong(visible, requested);
  if (device === undefined) throw notVisible(requested, visible, own, environment?.rank ?? 0, size);
  const place = { device, stream: ownStream(options) };
  const setup = setupOf(libraries, size);
  if (environment === undefined || size === 1) return openLocal(setup, [place], request.name);
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

/** The device of this process: the named one, or the one of its local rank. */
function requestedDevice({ devices }: NcclOptions, localRank: number): RequestedDevice {
  if (devices === undefined) return { device: localRank, isNamed: false };
  const device = devices.length === 1 ? devices[0] : devices[localRank];
  if (device !== undefined) return { device, isNamed: true };
  throw new InvalidArgumentError(
    {
      headline: `connect: devices: found ${devices.length}, local rank ${localRank} has none of them`,
      hint: "give one device for this process, or one for every rank of this machine",
    },
    { field: "devices" },
  );
}

function notVisible(
  { device, isNamed }: RequestedDevice,
  visible: number,
  { restrictedTo }: ProcessDevice,
  rank: number,
  size: number,
): BackendUnavailableError {
  const isOther = restrictedTo !== undefined && visible === 1;
  const found = isOther
    ? `its process took device ${restrictedTo} before`
    : `${visible} are visible`;
  const hint = isOther
    ? "CUDA shows a process that has connected its own GPU alone: name the same one, or start another process"
    : isNamed
      ? "devices count from 0 among those that CUDA_VISIBLE_DEVICES shows this process"
      : "one GPU per rank; look at CUDA_VISIBLE_DEVICES, or start fewer processes per machine";
  return new BackendUnavailableError(
    { headline: `connect: rank ${rank} is to use device ${device}, but ${found}`, hint },
    { rank, size, field: "devices" },
  );
}

/** The stream of this process's rank, where the caller gave one. */
function ownStream(options: NcclOptions): bigint | undefined {
  const streams = streamsOf(options);
  if (streams === undefined || streams.length === 1) return streams?.[0];
  throw invalid(
    "connect",
    "streams",
    `${streams.length} of them`,
    "1: a stream is this process's alone",
    "give nccl({ stream }) in every process",
  );
}
