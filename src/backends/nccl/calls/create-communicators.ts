/** Creation of NCCL communicators: of all ranks, and by splits. */
import type { CommInfo, RankCall } from "../../../api/backend-entry.ts";
import { forgetCurrentDevice } from "../device/device.ts";
import type { LocalMember, LocalRank } from "../device/local-rank.ts";
import type { LocalStream } from "../device/local-stream.ts";
import { located } from "../result/errors.ts";
import type { NcclCalls } from "../result/nccl.ts";
import type { ConfigFields } from "../sys/layouts.ts";
import { NcclCommunicator } from "./communicator.ts";

/**
 * Makes the communicator of all ranks, when all of them live in this process.
 *
 * Where the group fails, its handles stay: NCCL 2.28.9 gives back nothing for an abort of them.
 */
export function initAll(
  nccl: NcclCalls,
  info: CommInfo,
  locals: readonly LocalRank[],
  config: ConfigFields,
): NcclCommunicator {
  const slots = locals.map(() => new BigUint64Array(1));
  const size = locals.length;
  const id = nccl.uniqueId();
  nccl.group(() => {
    locals.forEach(({ device }, rank) => {
      try {
        device.use();
        nccl.initRank(slots[rank] as BigUint64Array, size, id, rank, config);
      } catch (error) {
        throw located(error, { rank, size, comm: info.name, device: device.name });
      }
    });
  });
  forgetCurrentDevice();
  const members = locals.map((local, rank) => {
    return { rank, local, stream: local.main, handle: slotValue(slots[rank]) };
  });
  return new NcclCommunicator(info, members, nccl);
}

/** Makes this process's end of the communicator of all ranks, without blocking where that can be done. */
export async function initOne(
  nccl: NcclCalls,
  info: CommInfo,
  local: LocalRank,
  id: Uint8Array,
  config: ConfigFields,
): Promise<NcclCommunicator> {
  const { worldRank: rank, device } = local;
  const size = info.ranks.length;
  const handle = await nccl.initRankInBackground(device.threadDevice, size, id, rank, config);
  forgetCurrentDevice();
  return new NcclCommunicator(info, [{ rank, local, stream: local.main, handle }], nccl, true);
}

/** NCCL's arguments for a member's part in a split. */
function splitArgs(worldRank: number, children: readonly CommInfo[]) {
  const color = children.findIndex(({ ranks }) => ranks.includes(worldRank));
  if (color < 0) return { color: undefined, key: 0 };
  return { color, key: (children[color] as CommInfo).ranks.indexOf(worldRank) };
}

/**
 * Splits a communicator with other members in other processes: NCCL waits for them on another thread. Gives the child
 * that this process is in, if it is in one.
 */
export async function splitInJob(
  nccl: NcclCalls,
  parent: NcclCommunicator,
  children: readonly CommInfo[],
  config: ConfigFields,
): Promise<NcclCommunicator[]> {
  const [member] = parent.members.values();
  const { handle, local } = member as LocalMember;
  const { worldRank, device } = local;
  const { color, key } = splitArgs(worldRank, children);
  const own = children[color ?? -1];
  const streams: OwnStreams = new Map();
  try {
    if (own !== undefined) openStreams(streams, own, [local]);
    const made = await nccl.splitInBackground(device.threadDevice, handle, color, key, config);
    if (own === undefined) return [];
    return [new NcclCommunicator(own, [memberOf(streams, key, local, made)], nccl, true)];
  } catch (error) {
    closeStreams(streams);
    throw error;
  } finally {
    forgetCurrentDevice();
  }
}

/**
 * Splits a communicator with all members here: every one takes part, whether or not it joins a child.
 *
 * NCCL's colors and keys are C's `int`s, those of a call are not. It therefore receives values that follow from them, equal in
 * all processes: the index of the child among all children, and the rank in it.
 */
export function splitLocal(
  nccl: NcclCalls,
  parent: NcclCommunicator,
  calls: readonly RankCall[],
  children: readonly CommInfo[],
  config: ConfigFields,
): NcclCommunicator[] {
  const slots = calls.map(() => new BigUint64Array(1));
  const locals = calls.map(({ rank }) => parent.member(rank).local);
  const streams: OwnStreams = new Map();
  try {
    for (const info of children) {
      const own = locals.filter(({ worldRank }) => info.ranks.includes(worldRank));
      openStreams(streams, info, own);
    }
    nccl.group(() => {
      calls.forEach(({ rank }, index) => {
        const { handle, local } = parent.member(rank);
        const { color, key } = splitArgs(local.worldRank, children);
        nccl.split(handle, color, key, slots[index] as BigUint64Array, config);
      });
    });
  } catch (error) {
    closeStreams(streams);
    throw error;
  } finally {
    forgetCurrentDevice();
  }
  return children.map((info) => {
    const members = locals.flatMap((local, index) => {
      const childRank = info.ranks.indexOf(local.worldRank);
      return childRank < 0 ? [] : [memberOf(streams, childRank, local, slotValue(slots[index]))];
    });
    return new NcclCommunicator(info, members, nccl);
  });
}

/** Streams that were opened for children with streams of their own. A rank is in one child of a split at most. */
type OwnStreams = Map<LocalRank, LocalStream>;

/** Opens a communicator's own streams, one for each of its ranks here, if it has such streams. */
function openStreams(opened: OwnStreams, info: CommInfo, locals: readonly LocalRank[]): void {
  const [first] = locals;
  if (info.ownStream !== true || first === undefined) return;
  // Its calls must not wait for calls on the ranks' main streams.
  const progress = first.main.progress.independent();
  for (const local of locals) opened.set(local, local.openStream(progress));
}

function memberOf(opened: OwnStreams, rank: number, local: LocalRank, handle: bigint): LocalMember {
  return { rank, local, stream: opened.get(local) ?? local.main, handle };
}

/** Closes them: the communicators were not created. */
function closeStreams(opened: OwnStreams): void {
  for (const [local, stream] of opened) local.closeStream(stream);
}

/** The handle that NCCL wrote. */
function slotValue(slot: BigUint64Array | undefined): bigint {
  return slot?.[0] ?? 0n;
}
