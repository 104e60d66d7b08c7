// The run through symmetric memory: every type under every kernel, until each has been compared on enough elements.
import { createWorld } from "../../dist/api/index.js";
import { compare, hopText, isRefused, questionOf } from "./calls.mjs";
import { random, symmetricDtypes } from "./draw.mjs";
import { Payload } from "./payload.mjs";
import { planText, predicted } from "./plans.mjs";

/** Bytes of the largest block of a call. */
const maxBytes = 2 ** 19;

/** Calls of one type and kernel in a row, with the same memory. */
const batch = 40;

const kinds = ["allReduce", "reduceScatter"].flatMap((collective) =>
  ["LL", "LD"].flatMap((protocol) =>
    symmetricDtypes.map((dtype) => ({ collective, protocol, dtype })),
  ),
);
const nameOf = ({ collective, protocol, dtype }) => `${collective} ${protocol} ${dtype}`;
const elementBytes = { float32: 4, float16: 2, bfloat16: 2, float8e4m3: 1, float8e5m2: 1 };

/** Runs until every type has `enough` elements under every kernel, or the time is over. Each element counts once. */
export async function symmetricRun({ sizes, seconds, seed, enough, makeGpu, makeSim, onProgress }) {
  const draw = random(seed ^ 0x57_33);
  const payload = new Payload(draw);
  const totals = { calls: 0, elements: 0, byKernel: {}, differentCalls: 0, plansRead: 0 };
  Object.assign(totals, { plansOtherwise: 0, resultsEqualButForNaN: 0, differences: [] });
  const until = performance.now() + seconds * 1000;
  const worlds = [];
  try {
    for (const size of sizes) {
      const backend = makeGpu({});
      const gpu = await createWorld({ backend, size, name: "gpu" });
      worlds.push({ backend, gpu, twin: await createWorld({ backend: makeSim({}), size }), size });
    }
    for (let turn = 0; performance.now() < until; turn++) {
      const rest = kinds.filter((kind) => (totals.byKernel[nameOf(kind)] ?? 0) < enough);
      if (rest.length === 0) break;
      const world = worlds[turn % worlds.length];
      await runBatch({ ...world, kind: draw.pick(rest), draw, payload, totals });
      onProgress(totals);
    }
  } finally {
    for (const { gpu, twin } of worlds) {
      await gpu.close();
      await twin.close();
    }
  }
  return totals;
}

/** A call of a kind: its kernel is the one that is predicted for the count. */
function drawCall({ collective, protocol, dtype }, { gpu, twin, size }, draw) {
  const bytes = elementBytes[dtype];
  // At other addresses NCCL loads 1- and 2-byte types wrongly, and the call is refused.
  const aligned = Math.max(1, 4 / bytes);
  const most = maxBytes / bytes;
  for (;;) {
    const reach = protocol === "LL" ? 75_000 / bytes : most;
    const count = aligned * (1 + draw.below(Math.floor(reach / aligned)));
    const offset = draw.chance(2) ? 0 : aligned * draw.pick([1, 2, 3, 5, 9]);
    const blocks = collective === "reduceScatter" ? size : 1;
    const call = { collective, dtype, op: "sum", count, offset, symmetric: true, blocks };
    const { protocol: found } = predicted(twin, questionOf(call));
    if (found === protocol && !isRefused(gpu, call)) return call;
  }
}

async function runBatch({ backend, gpu, twin, size, kind, draw, payload, totals }) {
  const calls = Array.from({ length: batch }, () => drawCall(kind, { gpu, twin, size }, draw));
  const inputs = calls.map(({ dtype, count, blocks }) => {
    const style = draw.chance(6) ? "bits" : "wide";
    return Array.from({ length: size }, () => payload.slice(dtype, style, count * blocks));
  });
  const body = (comm) => outputsOf(comm, kind, calls, inputs);
  backend.plans?.take();
  const [ofGpu, ofSim] = await Promise.all([gpu.run(body), twin.run(body)]);
  const taken = backend.plans?.take() ?? [];
  for (const [at, call] of calls.entries()) {
    const plan = predicted(twin, questionOf(call));
    totals.calls++;
    totals.elements += call.count * call.blocks;
    totals.byKernel[nameOf(kind)] = (totals.byKernel[nameOf(kind)] ?? 0) + call.count * call.blocks;
    if (taken.length === calls.length) {
      totals.plansRead++;
      if (planText(taken[at]) !== planText(plan)) totals.plansOtherwise++;
    }
    const [a, b] = [ofGpu, ofSim].map((ranks) => ranks.map((outputs) => outputs[at]));
    const difference = compare(call, a, b, totals);
    if (difference === undefined) continue;
    totals.differentCalls++;
    if (totals.differences.length < 20) {
      const hop = hopText(twin, call, difference, a, inputs[at]);
      totals.differences.push({ size, call, plan, ...difference, hop });
    }
  }
}

async function outputsOf(comm, { collective, dtype }, calls, inputs) {
  const most = (lengthOf) => Math.max(...calls.map((call) => call.offset + lengthOf(call)));
  const options = { symmetric: true };
  const sent = comm.alloc(
    dtype,
    most(({ count, blocks }) => count * blocks),
    options,
  );
  const received = comm.alloc(
    dtype,
    most(({ count }) => count),
    options,
  );
  const outputs = [];
  for (const [at, { count, blocks, offset, op }] of calls.entries()) {
    const send = sent.subarray(offset, offset + count * blocks);
    const recv = received.subarray(offset, offset + count);
    send.copyFrom(inputs[at][comm.rank]);
    if (collective === "allReduce") await comm.allReduce({ send, recv, op });
    else await comm.reduceScatter({ send, recv, op });
    outputs.push(await recv.toHost());
  }
  sent.dispose();
  received.dispose();
  return outputs;
}
