/**
 * How a hop of a float average or pre-multiplied sum rounds: `x * s + partial` in one step or in two.
 *
 * The operator's source leaves that to the compiler; this is what NCCL 2.28.9's library does on sm_90. Over LL128 the
 * lanes of a warp that carry the flag hand the second half of their 16 bytes to others, and only there the product is
 * rounded by itself: for 4- and 8-byte floats it depends on where in the chunk an element lies.
 */
import { type DType, dtypeInfo } from "../../api/dtype.ts";
import type { ReduceOp } from "../../api/reduce-op.ts";
import type { NcclProtocol } from "./protocol.ts";

/** `none` where nothing is multiplied, or never fused; `byPosition`: see `isFusedAt`. */
export type HopRounding = "none" | "fused" | "separate" | "byPosition";

/** Bytes after which the positions repeat: what half a warp moves in one LL128 line of data. */
export const patternBytes = 960;

/** Packs of 16 bytes, within a pattern, that are fused whole; of the others the second 8 bytes are not. */
const wholePacks: readonly number[] = [7, 15, 23, 31];

/** How the hops of a call round. */
export function hopRounding(dtype: DType, op: ReduceOp, protocol: NcclProtocol): HopRounding {
  const { kind, bytes } = dtypeInfo[dtype];
  const scales = op === "avg" || typeof op === "object";
  if (!scales || kind !== "float" || bytes === 1) return "none";
  if (protocol !== "LL128") return "fused";
  return bytes === 2 ? "separate" : "byPosition";
}

/** Whether an element of a 4- or 8-byte float is fused over LL128, by its byte offset in its chunk. */
export function isFusedAt(byteOffset: number): boolean {
  const inPattern = byteOffset % patternBytes;
  return inPattern % 16 < 8 || wholePacks.includes(Math.floor(inPattern / 16));
}

const masks = new Map<number, Uint8Array>();

/** One pattern, by element: 1 where the product is rounded by itself. */
export function separateMask(elementBytes: number): Uint8Array {
  let mask = masks.get(elementBytes);
  if (mask === undefined) {
    mask = Uint8Array.from({ length: patternBytes / elementBytes }, (_, i) =>
      isFusedAt(i * elementBytes) ? 0 : 1,
    );
    masks.set(elementBytes, mask);
  }
  return mask;
}
