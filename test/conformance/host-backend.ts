/** A backend on the memory of this process: every collective, folded in the order of ranks. */
import { bytesOf, type DeviceBuffer, type SpecifiedCollective, specifications } from "twinccl";
import { explainInRankOrder, foldFor, lanesOf } from "twinccl/algorithms";
import type { Backend, CallSet, Exchange, RankCall, RankDevice } from "twinccl/backend";
import { inRankOrder, memoryOf } from "twinccl/backend";
import { HostMemory } from "twinccl/sim";

/** The bytes of a buffer. */
function bytesIn(buffer: DeviceBuffer): Uint8Array {
  const memory = memoryOf(buffer) as HostMemory;
  return new Uint8Array(memory.buffer, buffer.byteOffset, buffer.byteLength);
}

/** First element and length of a block: a v-form gives both, every other call has blocks of `count`. */
function blockOf(call: RankCall, side: "send" | "recv", block: number): [number, number] {
  const [counts, offsets] = [call[`${side}Counts`], call[`${side}Offsets`]];
  return [offsets?.[block] ?? block * call.count, counts?.[block] ?? call.count];
}

/** Makes every output block of every rank out of the input blocks that its specification names. */
function collect({ collective, calls }: CallSet): void {
  const { expected, outBlocks, reduces } = specifications[collective as SpecifiedCollective];
  const ranks = calls.length;
  // Copies, because an output may lie on an input.
  const inputs = calls.map(({ send }) => send && bytesIn(send).slice());
  for (const { rank, root, recv, dtype } of calls) {
    if (recv === undefined || dtype === undefined) continue;
    // A fold for each rank: scalars of a pre-multiplied sum may differ.
    const folds = calls.map(({ op = "sum" }) => foldFor(dtype, op, ranks, "fused"));
    for (let block = 0; block < outBlocks(ranks, rank, root); block++) {
      const [start, count] = blockOf(calls[rank]!, "recv", block);
      if (count === 0) continue;
      const result = new Uint8Array(count * bytesOf(dtype));
      const lanes = lanesOf(dtype, result.buffer, 0, result.length);
      for (const [hop, from] of expected(ranks, rank, block, root).entries()) {
        const { buffer, length } = inputs[from.rank]!;
        const input = lanesOf(dtype, buffer, 0, length);
        const [at] = blockOf(calls[from.rank]!, "send", from.block);
        if (hop === 0) folds[from.rank]!.begin(lanes, 0, input, at, count);
        else folds[from.rank]!.addContribution(lanes, 0, input, at, count);
      }
      // One rank alone copies, unless it multiplies.
      if (reduces && (ranks > 1 || folds[0]!.scales)) folds[0]!.finish(lanes, 0, count);
      bytesIn(recv).set(result, start * bytesOf(dtype));
    }
  }
}

/** Copies messages. All are under way at once: every send is read before a receive is written. */
function exchange({ transfers }: Exchange): void {
  const sent = transfers.map(({ send }) => bytesIn(send.send!).slice());
  for (const [i, { recv }] of transfers.entries()) bytesIn(recv.recv!).set(sent[i]!);
}

/** The device of a rank: addresses count from a base of its own. */
function deviceOf(rank: number): RankDevice {
  const name = `host:${rank}`;
  let next = BigInt(rank + 1) << 48n;
  const allocate = (bytes: number): HostMemory => {
    const memory = new HostMemory(name, next, new ArrayBuffer(bytes), false);
    next += BigInt(bytes + 1);
    return memory;
  };
  const none = (): never => {
    throw new Error("without capabilities.hostArrays no TypedArray is borrowed");
  };
  return { name, streamOf: nothing, allocate, adopt: () => undefined, borrow: none };
}

const nothing = (): undefined => undefined;

/** The backend, for `createWorld`. */
export const host = (): Backend => ({
  name: "host",
  probe: () => ({ ok: true, reason: "needs nothing" }),
  open: async ({ size }) => {
    const localRanks = Array.from({ length: size }, (_, rank) => rank);
    const devices = localRanks.map(deviceOf);
    const can = { hostArrays: false, virtualTime: false, symmetricMemory: false };
    const capabilities = { ...can, deterministic: true };
    return {
      info: { backend: "host", size, localRanks, capabilities, timeoutMs: undefined },
      device: (rank) => devices[rank]!,
      execute: (work) => ("transfers" in work ? exchange(work) : collect(work)),
      explain: explainInRankOrder,
      estimate: () => 0,
      scheduler: inRankOrder(size),
      observer: undefined,
      ...{ refusal: nothing, capture: nothing, split: nothing, discard: nothing },
      ...{ abort: nothing, release: nothing, close: nothing },
    };
  },
});
