/** A call that has a shape and no memory, for NCCL to estimate: its addresses are never used. */
import {
  bytesOf,
  type DeviceBuffer,
  type Question,
  type RankCall,
  UnsupportedError,
} from "../../../api/index.ts";

/** Collectives that NCCL estimates. */
const estimated = new Set(["allReduce", "reduce", "broadcast", "allGather", "reduceScatter"]);

/** Addresses that look like apart and aligned device memory. */
const sendAddress = 0x7f00_0000_0000n;
const recvAddress = 0x7e00_0000_0000n;

/**
 * The call of one rank.
 *
 * @throws UnsupportedError for a call that NCCL does not estimate: messages, and what is made of them.
 */
export function phantomCall(question: Question, rank: number, ranks: number): RankCall {
  const { collective, dtype = "float32", count = 0, root = 0, op = "sum" } = question;
  if (!estimated.has(collective)) {
    throw new UnsupportedError({
      headline: `estimate: NCCL estimates ${[...estimated].join(", ")}, not ${collective}`,
      hint: "explain predicts every call",
    });
  }
  const reduces = collective !== "broadcast" && collective !== "allGather";
  const length = count * (collective === "allGather" || collective === "reduceScatter" ? ranks : 1);
  const buffer = (ptr: bigint): DeviceBuffer =>
    ({ ptr, dtype, length, byteLength: length * bytesOf(dtype) }) as DeviceBuffer;
  return {
    rank,
    collective,
    dtype,
    op: reduces ? op : undefined,
    count,
    root: collective === "broadcast" || collective === "reduce" ? root : -1,
    send: buffer(sendAddress),
    recv: buffer(recvAddress),
    sendCounts: undefined,
    sendOffsets: undefined,
    recvCounts: undefined,
    recvOffsets: undefined,
    split: undefined,
    recorded: undefined,
    graph: undefined,
    postedAtPs: 0,
    finishedAtPs: 0,
  };
}
