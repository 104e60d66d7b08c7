/** A backend on the memory of this process: every collective, folded in the order of ranks. */
import { bytesOf } from "twinccl";
import type { OutputBlock } from "twinccl/algorithms";
import { explainInRankOrder, foldFor, lanesOf, outputsOf } from "twinccl/algorithms";
import { type Backend, inRankOrder, memoryOf, type Work } from "twinccl/backend";
import { type HostMemory, hostDevices } from "twinccl/sim";

/** The bytes of an output block: a copy of its input, or the fold of its inputs. */
function bytesIn({ buffer, count, reduces, inputs }: OutputBlock): Uint8Array {
  const { dtype } = buffer;
  const bytes = new Uint8Array(count * bytesOf(dtype));
  const value = lanesOf(dtype, bytes.buffer, 0, bytes.length);
  // A fold for each rank: scalars of a pre-multiplied sum may differ.
  const folds = inputs.map(({ op = "sum" }) => foldFor(dtype, op, inputs.length, "fused"));
  for (const [hop, input] of inputs.entries()) {
    const lanes = (memoryOf(input.buffer) as HostMemory).lanes(dtype);
    const at = input.buffer.byteOffset / bytesOf(dtype) + input.start;
    if (hop === 0) folds[hop]!.begin(value, 0, lanes, at, count);
    else folds[hop]!.addContribution(value, 0, lanes, at, count);
  }
  // One rank alone copies, unless it multiplies.
  if (reduces && (inputs.length > 1 || folds[0]!.scales)) folds[0]!.finish(value, 0, count);
  return bytes;
}

/** Runs a call or messages. All blocks are read before one is written: an output may lie on an input. */
function execute(work: Work): void {
  const outputs = outputsOf(work);
  const contents = outputs.map(bytesIn);
  for (const [i, { buffer, start }] of outputs.entries()) {
    memoryOf(buffer).write(buffer.byteOffset + start * bytesOf(buffer.dtype), contents[i]!);
  }
}

const nothing = (): undefined => undefined;

/** The backend, for `createWorld`. */
export const host = (): Backend => ({
  name: "host",
  probe: () => ({ ok: true, reason: "needs nothing" }),
  open: async ({ size }) => {
    const devices = hostDevices("host", size);
    const can = { hostArrays: true, deterministic: true };
    const capabilities = { ...can, virtualTime: false, symmetricMemory: false };
    const localRanks = [...devices.keys()];
    return {
      info: { backend: "host", size, localRanks, capabilities, timeoutMs: undefined },
      device: (rank) => devices[rank]!,
      execute,
      explain: explainInRankOrder,
      estimate: () => 0,
      scheduler: inRankOrder(size),
      observer: undefined,
      ...{ refusal: nothing, capture: nothing, split: nothing, discard: nothing },
      ...{ abort: nothing, release: nothing, close: nothing },
    };
  },
});
