/** Opens sessions: all ranks in this process, or this process as one rank of a job. */
import { hostname } from "node:os";
import type { ResolvedPin } from "../../algorithms/index.ts";
import { assertRingSize } from "../../algorithms/nccl/index.ts";
import type { CommInfo, JoinRequest } from "../../api/backend-entry.ts";
import {
  BackendUnavailableError,
  CommAbortedError,
  type CommErrorFacts,
  CommTimeoutError,
} from "../../api/index.ts";
import { runAll } from "../../api/run-all.ts";
import type { CompareCalls } from "../../job/before-calls.ts";
import { bootId } from "../../job/file-record.ts";
import { openJob, type SessionOpener } from "../../job/job.ts";
import type { OpenBounds } from "../../job/rebuild.ts";
import type { Membership } from "../../job/rendezvous.ts";
import type { NcclCommunicator } from "./calls/communicator.ts";
import { initAll, initOne } from "./calls/create-communicators.ts";
import { Device, type RankPlacement } from "./device/device.ts";
import { LocalRank } from "./device/local-rank.ts";
import { Progress } from "./device/progress.ts";
import { SubmissionHold } from "./device/submission-hold.ts";
import type { Libraries } from "./discovery/libraries.ts";
import { NcclJobSession } from "./job-session.ts";
import type { NcclOptions } from "./options.ts";
import { pinnedConfig, startPinned, startPinnedJob } from "./process/pinned-start.ts";
import type { PlanRecord } from "./process/plan-log.ts";
import { processSettings } from "./process/process-settings.ts";
import { CudaError, located } from "./result/errors.ts";
import { NcclSession } from "./session.ts";
import type { ConfigFields } from "./sys/layouts.ts";

/** Arguments of every session. */
export interface Setup {
  readonly libraries: Libraries;
  readonly config: ConfigFields;
  readonly timeoutMs: number | undefined;
  readonly compareCalls?: CompareCalls | undefined;
  /** "copy" if calls accept arrays, which are copied; by default they accept none. */
  readonly staging?: NcclOptions["staging"];
  /** The pinned plan; none by default. */
  readonly pin?: ResolvedPin | undefined;
  /** Reason why NCCL's plans differ from the usual ones in this process, if they do. */
  readonly unusual?: string | undefined;
  /** Records NCCL's plans of a communicator since the previous call. */
  readonly readPlans?: ((comm: string) => void) | undefined;
}

/** Opens all ranks of a world, one per device. */
export async function openLocal(
  setup: Setup,
  found: readonly RankPlacement[],
  name: string,
): Promise<NcclSession> {
  const { pin = {} } = setup;
  const ranks = found.map((_, rank) => rank);
  const info: CommInfo = { id: 0, name, ranks, local: ranks };
  const here = openDevices(setup, found, info);
  const { nccl, cuda } = setup.libraries;
  let world: NcclCommunicator | undefined;
  try {
    const places = busIds(cuda, found, pin, info);
    const capabilities = found.map((place, rank) =>
      capabilityOf(cuda, place, { rank, size: found.length, comm: name }),
    );
    const start = () => initAll(nccl, info, here.locals, setup.config);
    world = await startPinned(pin, places ?? [], start);
    setup.readPlans?.(name);
    return here.watch(new NcclSession({ ...setup, ...here, world, places, capabilities }));
  } catch (error) {
    await world?.abort();
    here.release();
    throw located(error, { size: found.length, comm: name });
  }
}

/** Opens this process's rank in one generation of a job: either all ranks open, or none. */
export function openJoined(
  setup: Setup,
  own: RankPlacement,
  membership: Membership,
  { name, timeoutMs, signal }: JoinRequest,
): Promise<NcclJobSession> {
  const backend: SessionOpener<OpenedRank, NcclJobSession> = {
    open: (generation, bounds) => openOwnRank(setup, own, generation, name, bounds),
    undo: async ({ here, world }) => {
      await world.abort();
      here.release();
    },
    session: ({ here, world, places, capabilities }, job) =>
      here.watch(new NcclJobSession({ ...setup, ...here, world, places, capabilities, job })),
  };
  return openJob(membership, backend, { timeoutMs, signal }, setup.compareCalls);
}

type OpenedRank = Awaited<ReturnType<typeof openOwnRank>>;

/** Opens this rank's device and its communicator of all ranks. */
async function openOwnRank(
  setup: Setup,
  own: RankPlacement,
  membership: Membership,
  name: string,
  bounds: OpenBounds,
) {
  const { leftMs, cancelled } = bounds;
  const { rank, size } = membership;
  const { nccl, cuda } = setup.libraries;
  const { pin = {} } = setup;
  // An exchange answers all ranks at once, because rank 0 may host the store and is blocked during NCCL's start.
  const exchange = (what: string, bytes: Uint8Array): Promise<Uint8Array[]> =>
    membership.exchange(what, bytes, { timeoutMs: leftMs(), signal: cancelled });
  const facts = { rank, size, comm: name };
  const ownDevice = [`${ncclHost()} ${busId(cuda, own, facts)}`, capabilityOf(cuda, own, facts)];
  const found = await exchange("device", new TextEncoder().encode(ownDevice.join("\n")));
  const devices = found.map((bytes) => new TextDecoder().decode(bytes).split("\n"));
  const places = devices.map(([place = ""]) => place);
  const capabilities = devices.map(([, capability]) => Number(capability));
  refuseShared(places, rank);
  const share = async (what: string, ofFirst: () => Uint8Array): Promise<Uint8Array> => {
    const bytes = rank === 0 ? ofFirst() : new Uint8Array(0);
    const [shared] = (await exchange(what, bytes)) as [Uint8Array];
    return shared;
  };
  const ranks = Array.from({ length: size }, (_, each) => each);
  const info: CommInfo = { id: 0, name, ranks, local: [rank] };
  const here = openDevices(setup, [own], info);
  const [local] = here.locals as [LocalRank];
  let world: NcclCommunicator | undefined;
  try {
    const opening = startPinnedJob(pin, places, {
      agreeOnId: (which) =>
        share(which === "first" ? "first id" : "unique id", () => nccl.uniqueId()),
      begin: (id) => {
        const begun = initOne(nccl, info, local, id, setup.config);
        return abortIfLate(begun, cancelled);
      },
      share: (graphs) => share("graphs", graphs),
      cancelled,
    });
    world = await withStartDeadline(bounds, opening, membership);
    setup.readPlans?.(name);
    return { here, world, places, capabilities };
  } catch (error) {
    await world?.abort();
    here.release();
    throw located(error, { rank, size, comm: name, device: local.device.name });
  }
}

/** Aborts a communicator with a start that completes after the cancellation. */
function abortIfLate(
  begun: Promise<NcclCommunicator>,
  cancelled: AbortSignal,
): Promise<NcclCommunicator> {
  begun.then((created) => (cancelled.aborted ? created.abort() : undefined)).catch(() => undefined);
  return begun;
}

/**
 * Creates streams and memory of this process's ranks. `watch` lets their session check for asynchronous errors; `release`
 * releases everything after a failed opening, once the communicator is aborted.
 */
function openDevices({ libraries }: Setup, places: readonly RankPlacement[], info: CommInfo) {
  const { cuda } = libraries;
  let opened: NcclSession | undefined;
  const hold = new SubmissionHold(info.local.length < info.ranks.length);
  const progress = new Progress(() => opened?.checkAll(), undefined, hold);
  const locals: LocalRank[] = [];
  const devices: Device[] = [];
  /** Errors of the release are ignored in favour of the failure. */
  const release = (): void => {
    try {
      runAll([...locals, ...devices].map((each) => () => each.release()));
    } catch {}
  };
  for (const [at, place] of places.entries()) {
    const rank = info.local[at] as number;
    try {
      const device = new Device(cuda, place.device, place.stream);
      devices.push(device);
      locals.push(new LocalRank(rank, device, progress, libraries.nccl));
    } catch (error) {
      release();
      const [size, device] = [info.ranks.length, `cuda:${place.device}`];
      throw located(error, { rank, size, comm: info.name, device });
    }
  }
  const watch = <S extends NcclSession>(session: S): S => {
    opened = session;
    progress.watchIdle();
    return session;
  };
  return { progress, locals, watch, release };
}

/** Bus ids of the ranks' GPUs; `undefined` if CUDA does not report them, an error only with pinned rings. */
function busIds(
  cuda: Libraries["cuda"],
  found: readonly RankPlacement[],
  { rings }: ResolvedPin,
  { name: comm }: CommInfo,
): string[] | undefined {
  try {
    return found.map((place, rank) => busId(cuda, place, { rank, size: found.length, comm }));
  } catch (error) {
    if (rings !== undefined || !(error instanceof CudaError)) throw error;
    return undefined;
  }
}

/** The bus id of a rank's GPU; CUDA's errors name the device, and `facts`. */
function busId(cuda: Libraries["cuda"], { device }: RankPlacement, facts: CommErrorFacts): string {
  try {
    return cuda.pciBusId(device);
  } catch (error) {
    throw located(error, { ...facts, device: `cuda:${device}` });
  }
}

/** The compute capability of a rank's GPU; CUDA's errors name the device, and `facts`. */
function capabilityOf(
  cuda: Libraries["cuda"],
  { device }: RankPlacement,
  facts: CommErrorFacts,
): number {
  try {
    return Number(cuda.computeCapability(device));
  } catch (error) {
    throw located(error, { ...facts, device: `cuda:${device}` });
  }
}

/** Refuses two ranks on one GPU, which hang NCCL or fail without the names of the ranks; on every rank alike. */
function refuseShared(places: readonly string[], rank: number): void {
  const seen = new Set<string>();
  const place = places.find((each, at) => seen.add(each).size === at);
  if (place === undefined) return;
  const ranks = places.flatMap((other, each) => (other === place ? [each] : []));
  throw new BackendUnavailableError(
    {
      headline: `connect: ranks ${ranks.join(", ")} all use the GPU ${withHostNames(place)}`,
      hint: "one GPU per rank: the launcher's local rank chooses it, or nccl({ devices: [...] }). `twinccl launch --hosts N` imitates hosts, whose ranks may share one",
    },
    { rank, size: places.length, ranks, field: "devices" },
  );
}

/** NCCL's initialisation has no deadline: if it takes too long or is cancelled, it is abandoned. */
async function withStartDeadline<T extends { abort(): Promise<void> }>(
  { leftMs, timeoutMs, cancelled }: OpenBounds,
  opening: Promise<T>,
  { rank, size }: Membership,
): Promise<T> {
  const over = new AbortController();
  const stopped = new Promise<never>((_, reject) => {
    const late = {
      headline: `connect: NCCL did not bring ${size} ranks together within ${timeoutMs} ms`,
      hint: "a rank was lost on the way, or its network is not reachable; NCCL_DEBUG=INFO logs more",
    };
    const timer = setTimeout(() => reject(new CommTimeoutError(late, { rank, size })), leftMs());
    over.signal.addEventListener("abort", () => clearTimeout(timer));
    const giveUp = (): void => {
      const text = { headline: "connect: given up while NCCL started" };
      reject(new CommAbortedError(text, { rank, size, cause: cancelled.reason }));
    };
    if (cancelled.aborted) giveUp();
    cancelled.addEventListener("abort", giveUp, { signal: over.signal });
  });
  try {
    return await Promise.race([opening, stopped]);
  } catch (error) {
    // The start may have completed just before.
    opening.then((created) => created.abort()).catch(() => undefined);
    throw error;
  } finally {
    over.abort();
  }
}

/** NCCL's identity of this host: `NCCL_HOSTID`, or the host name and the boot id. */
function ncclHost(): string {
  return process.env["NCCL_HOSTID"] ?? `${hostname()}#${bootId()}`;
}

/** Removes the boot ids of hosts from a text. */
function withHostNames(text: string): string {
  return text.replace(/#\S*/g, "");
}

/** The session to open: number of ranks and pinned plan. */
interface SetupRequest {
  readonly pin: ResolvedPin;
  readonly size: number;
  readonly plans: PlanRecord;
  readonly libraries: Libraries;
}

/**
 * Arguments of a session. Called after all other checks, right before the first use of NCCL: the settings of a process are
 * final.
 *
 * @throws InvalidArgumentError, UnsupportedError for settings that differ from those that NCCL has read in this process.
 */
export function sessionSetup(
  { timeoutMs, compareCalls, staging, nvls = false, readPlan = false }: NcclOptions,
  { pin, size, plans, libraries }: SetupRequest,
): Setup {
  assertRingSize(pin, size);
  processSettings.assertNothingShared();
  processSettings.settleNvls(nvls);
  const log = processSettings.settle(pin, readPlan);
  return {
    libraries,
    config: pinnedConfig(pin),
    timeoutMs,
    compareCalls,
    staging,
    pin: { ...pin, ...processSettings.readOnce() },
    unusual: processSettings.unusual(),
    readPlans: log && ((comm) => plans.read(log, comm)),
  };
}
