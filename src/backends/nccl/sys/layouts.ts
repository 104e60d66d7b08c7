/**
 * Layouts of C structures as offsets, equal on x86-64 and arm64 (only 32-bit, 64-bit and pointer fields).
 *
 * NCCL copies the smaller of its own and the caller's size, so the 2.28 layout serves every library from 2.18 on.
 *
 * @see https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/types.html
 */

/** Bytes of an `ncclUniqueId`, passed by value. */
export const uniqueIdBytes = 128;

/** Value of an int field left to NCCL. */
const undefinedInt = -0x8000_0000;

/** The version of the headers that these layouts follow: 2.28.9. */
const headerVersion = 22809;

/** Offset of each 32-bit field of `ncclConfig_t` that a caller may set. */
const configFields = {
  blocking: 16,
  cgaClusterSize: 20,
  minCTAs: 24,
  maxCTAs: 28,
  splitShare: 40,
  trafficClass: 44,
  collnetEnable: 56,
  CTAPolicy: 60,
  shrinkShare: 64,
  nvlsCTAs: 68,
  nChannelsPerNetPeer: 72,
  nvlinkCentricSched: 76,
} as const;

const configBytes = 80;
const configMagic = 0xcafebeef;

/** Settings of a communicator; omitted fields are left to NCCL. */
export type ConfigFields = Partial<Record<keyof typeof configFields, number>>;

/** An `ncclConfig_t`; both pointers in it (network and communicator name) are null. */
export function ncclConfig(fields: ConfigFields): Uint8Array {
  const bytes = new Uint8Array(configBytes);
  const view = new DataView(bytes.buffer);
  view.setBigUint64(0, BigInt(configBytes), true);
  view.setUint32(8, configMagic, true);
  view.setUint32(12, headerVersion, true);
  for (const [name, offset] of Object.entries(configFields)) {
    view.setInt32(offset, fields[name as keyof ConfigFields] ?? undefinedInt, true);
  }
  return bytes;
}

const simInfoBytes = 24;
const simInfoMagic = 0x74685283;
const estimatedTimeOffset = 16;

/** An `ncclSimInfo_t` to be filled by `ncclGroupSimulateEnd`. */
export function ncclSimInfo(): Uint8Array {
  const bytes = new Uint8Array(simInfoBytes);
  const view = new DataView(bytes.buffer);
  view.setBigUint64(0, BigInt(simInfoBytes), true);
  view.setUint32(8, simInfoMagic, true);
  view.setUint32(12, headerVersion, true);
  view.setFloat32(estimatedTimeOffset, -1, true);
  return bytes;
}

/** The estimate in a filled `ncclSimInfo_t`, in microseconds. */
export function estimatedTimeUs(info: Uint8Array): number {
  return new DataView(info.buffer, info.byteOffset).getFloat32(estimatedTimeOffset, true);
}
