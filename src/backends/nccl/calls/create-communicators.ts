/** Creation of NCCL communicators: of all ranks, and by splits. */
import type { CommInfo, RankCall } from "../../../api/backend-entry.ts";
import { forgetCurrentDevice } from "../device/device.ts";
import type { LocalMember, LocalRank } from "../device/local-rank.ts";
import { located } from "../result/errors.ts";
import type { NcclCalls } from "../result/nccl.ts";
import type { ConfigFields } from "../sys/layouts.ts";
import { NcclCommunicator } from "./communicator.ts";

/** Makes the communicator of all ranks, when all of them live in this process. */
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
  const members = locals.map((local, rank) => ({ rank, local, handle: slotValue(slots[rank]) }));
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
  return new NcclCommunicator(info, [{ rank, local, handle }], nccl);
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
  const made = await nccl.splitInBackground(device.threadDevice, handle, color, key, config);
  forgetCurrentDevice();
  const own = children[color ?? -1];
  return own === undefined
    ? []
    : [new NcclCommunicator(own, [{ rank: key, local, handle: made }], nccl)];
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
  nccl.group(() => {
    calls.forEach(({ rank }, index) => {
      const { handle, local } = parent.members.get(rank) as LocalMember;
      const { color, key } = splitArgs(local.worldRank, children);
      nccl.split(handle, color, key, slots[index] as BigUint64Array, config);
    });
  });
  forgetCurrentDevice();
  return children.map((info) => {
    const members = calls.flatMap(({ rank }, index) => {
      const { local } = parent.members.get(rank) as LocalMember;
      const childRank = info.ranks.indexOf(local.worldRank);
      return childRank < 0 ? [] : [{ rank: childRank, local, handle: slotValue(slots[index]) }];
    });
    return new NcclCommunicator(info, members, nccl);
  });
}

/** The handle that NCCL wrote. */
function slotValue(slot: BigUint64Array | undefined): bigint {
  return slot?.[0] ?? 0n;
}
