// Makes one call on a rank, and compares what both backends gave.
import { firstDifference } from "../../dist/api/bits.js";
import { divergenceText, orderEndingAt } from "../../dist/cli/verify/divergence.js";
import { canonicalForm } from "../../dist/golden/outputs.js";
import { bytes } from "./arrays.mjs";
import { operatorOf } from "./draw.mjs";

/** The call as `explain` takes it. */
export function questionOf(call) {
  const { collective, dtype, count, root, symmetric, offset } = call;
  const rooted = collective === "reduce" || collective === "broadcast";
  return {
    ...{ collective, dtype, count },
    ...(call.op !== undefined && { op: operatorOf(call) }),
    ...(rooted && { root }),
    ...(symmetric && { symmetric: { sendOffset: offset, recvOffset: offset } }),
  };
}

/** True where the backend of a world refuses the call: NCCL 2.28.3 misplaces some blocks of symmetric memory. */
export function isRefused(world, call) {
  return call.symmetric && world.explain(questionOf(call)).claim.startsWith("no call");
}

/** The result of a rank; `undefined` where it has none. */
export async function outputOf(comm, call, input) {
  const { collective, dtype, count, root, symmetric, offset, inPlace } = call;
  const options = { symmetric };
  const recvLength = collective === "allGather" ? count * comm.size : count;
  const sent = comm.alloc(dtype, offset + input.length, options);
  const received = inPlace ? undefined : comm.alloc(dtype, offset + recvLength, options);
  try {
    const send = sent.subarray(offset);
    send.copyFrom(input);
    const recv = received?.subarray(offset) ?? send;
    const op = operatorOf(call);
    if (collective === "allReduce") await comm.allReduce({ send, recv, op });
    else if (collective === "reduceScatter") await comm.reduceScatter({ send, recv, op });
    else if (collective === "allGather") await comm.allGather({ send, recv });
    else if (collective === "broadcast") {
      await comm.broadcast({ ...(comm.rank === root && { send }), recv, root });
    } else {
      await comm.reduce({ send, ...(comm.rank === root && { recv }), op, root });
      if (comm.rank !== root) return undefined;
    }
    return await recv.toHost();
  } finally {
    sent.dispose();
    received?.dispose();
  }
}

/** Compares by bits; float64 alone may differ in the NaN that it gives. Counts such cases. */
export function compare(call, ofGpu, ofSim, totals) {
  for (const [rank, output] of ofGpu.entries()) {
    const other = ofSim[rank];
    if (output === undefined && other === undefined) continue;
    if (Buffer.compare(bytes(output), bytes(other)) === 0) continue;
    const folds = call.op !== undefined && call.dtype === "float64";
    const [a, b] = folds ? [output, other].map(withOneNaN) : [output, other];
    const difference = firstDifference(a, b, a.BYTES_PER_ELEMENT);
    if (difference !== undefined) return { rank, ...difference };
    totals.resultsEqualButForNaN++;
  }
  return undefined;
}

/** A copy in which every NaN has the same bits. */
function withOneNaN(values) {
  return values.map((value) => (Number.isNaN(value) ? Number.NaN : value));
}

/** A difference in words: the plan's piece, and the hop at which the results part. */
export function hopText(world, call, { rank, element }, ofGpu, inputs) {
  if (call.op === undefined) return "a copy";
  const scatters = call.collective === "reduceScatter";
  const isOwned = (scatters && !call.symmetric) || call.collective === "reduce";
  // The question is about rank 0's block.
  const question = questionOf(isOwned && !scatters ? { ...call, root: 0 } : call);
  const { chunk, order } = world.explain(question).chunkOf(element);
  const at = (scatters ? rank * call.count : 0) + element;
  const parting = divergenceText({
    dtype: call.dtype,
    op: operatorOf(call),
    order: isOwned ? orderEndingAt(order, rank) : order,
    contributions: inputs.map((input) => input.slice(at, at + 1)),
    found: canonicalForm(ofGpu[rank].slice(element, element + 1), call.dtype, call.op),
  });
  return `chunk ${chunk}: ${parting}`;
}
