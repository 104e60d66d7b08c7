/** `connect` on GPUs: the rank, the GPU and the rendezvous of this process. */

import type { JoinRequest, Session } from "../../api/backend-entry.ts";
import { BackendUnavailableError, InvalidArgumentError } from "../../api/index.ts";
import { invalid } from "../../api/option-kinds.ts";
import { optionText } from "../../job/agreed-backend.ts";
import { joinLaunched, launchedRank } from "../../job/launcher-rendezvous.ts";
import { visibleDevices } from "./devices.ts";
import type { Libraries } from "./discovery/libraries.ts";
import { openJoined, openLocal, type Setup } from "./open.ts";
import { type NcclOptions, streamsOf } from "./options.ts";
import { needsVariables, reachingPin } from "./process/pinned-start.ts";
import { afterStarts, disableRuntimeConnect, openAfterMs } from "./process/start-variables.ts";
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
  const job = launchedRank(request);
  const { rank, size, localRank } = job ?? { rank: 0, size: 1, localRank: 0 };
  const requested = requestedDevice(options, localRank);
  const stream = ownStream(options);
  if (size > 1) {
    own.restrictTo(requested);
    disableRuntimeConnect();
  }
  const find = async () => {
    const { libraries, visible } = await findDevices(options);
    const device = own.indexAmong(visible, requested);
    if (device === undefined) throw notVisible(requested, visible, own, rank, size);
    return { libraries, place: { device, stream } };
  };
  if (job === undefined) {
    const { libraries, place } = await find();
    const start = () => openLocal(setupOf(libraries, size), [place], request.name);
    return afterStarts(needsVariables(reachingPin(options.plan)), start, openAfterMs);
  }
  return joinLaunched(job, request, {
    name: "nccl",
    options: { compareCalls: options.compareCalls ?? "off", plan: optionText(options.plan) },
    find,
    // The process's settings for NCCL are final from here on.
    open: (membership, { libraries, place }) =>
      openJoined(setupOf(libraries, size), place, membership, request),
  });
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
