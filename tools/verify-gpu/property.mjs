// The property run: random settings and calls on GPUs and on the simulation, compared bit by bit, for so many seconds.
import { createWorld } from "../../dist/api/index.js";
import { compare, hopText, isRefused, outputOf, questionOf } from "./calls.mjs";
import { drawCall, drawPin, isFloat, random } from "./draw.mjs";
import { Payload } from "./payload.mjs";
import { planText, predicted } from "./plans.mjs";

/** Settings change this often: NCCL needs a second or more for a start. */
const settingSeconds = 2.5;
const maxReported = 20;

function emptyTotals() {
  return {
    ...{ settings: 0, pinnedRings: 0, calls: 0, elements: 0, orderSensitiveElements: 0 },
    ...{ differentCalls: 0, resultsEqualButForNaN: 0, plansRead: 0, plansOtherwise: 0 },
    ...{ byDtype: {}, byPlan: {}, bySize: {}, byOperator: {} },
    ...{ differences: [], planDifferences: [] },
  };
}

/** Runs until the time is over; totals count each element of a result once, not once for each rank. */
export async function propertyRun({ sizes, seconds, seed, buffers, makeGpu, makeSim, onProgress }) {
  const draw = random(seed);
  const payload = new Payload(draw);
  const totals = emptyTotals();
  const until = performance.now() + seconds * 1000;
  while (performance.now() < until) {
    // With two ranks no sum shows its order.
    const size = draw.pick(draw.chance(4) || sizes.length < 2 ? sizes : sizes.slice(1));
    const pin = drawPin(draw, size, buffers);
    const end = Math.min(until, performance.now() + settingSeconds * 1000);
    await runSetting({ size, pin, end, draw, payload, totals, makeGpu, makeSim });
    totals.settings++;
    if (pin.rings !== undefined) totals.pinnedRings++;
    onProgress(totals);
  }
  return totals;
}

async function runSetting({ size, pin, end, draw, payload, totals, makeGpu, makeSim }) {
  const gpuBackend = makeGpu(pin);
  const worlds = [];
  try {
    worlds.push(await createWorld({ backend: gpuBackend, size, name: "gpu" }));
    worlds.push(await createWorld({ backend: makeSim(pin), size, name: "sim" }));
    const [gpu, twin] = worlds;
    gpuBackend.plans?.take();
    do {
      const call = drawCall(draw, size, pin);
      if (isRefused(gpu, call)) continue;
      const length = call.collective === "allGather" ? call.count : call.count * call.blocks;
      const inputs = Array.from({ length: size }, () =>
        payload.slice(call.dtype, call.style, length),
      );
      const body = (comm) => outputOf(comm, call, inputs[comm.rank]);
      const [ofGpu, ofSim] = await Promise.all([gpu.run(body), twin.run(body)]);
      const plan = predicted(twin, questionOf(call));
      count(totals, call, plan, size);
      const facts = { size, pin, call: { ...call }, plan };
      note(totals, facts, compare(call, ofGpu, ofSim, totals), (difference) =>
        hopText(twin, call, difference, ofGpu, inputs),
      );
      notePlan(totals, facts, gpuBackend.plans?.take().at(-1));
    } while (performance.now() < end);
  } finally {
    for (const world of worlds) await world.close();
  }
}

function add(table, key, elements) {
  table[key] = (table[key] ?? 0) + elements;
}

function count(totals, call, plan, size) {
  const elements = call.count * call.blocks;
  totals.calls++;
  totals.elements += elements;
  const ordered = call.op !== undefined && !["min", "max"].includes(call.op);
  if (ordered && size >= 3 && isFloat(call.dtype) && call.style === "wide")
    totals.orderSensitiveElements += elements;
  add(totals.byDtype, call.dtype, elements);
  add(totals.byPlan, `${plan.algorithm} ${plan.protocol} ${call.collective}`, elements);
  add(totals.bySize, size, elements);
  if (call.op !== undefined) add(totals.byOperator, call.op, elements);
}

function note(totals, facts, difference, hop) {
  if (difference === undefined) return;
  totals.differentCalls++;
  if (totals.differences.length >= maxReported) return;
  const { rank, element, a, b } = difference;
  totals.differences.push({ ...facts, rank, element, gpu: a, sim: b, hop: hop(difference) });
}

function notePlan(totals, facts, taken) {
  if (taken === undefined) return;
  totals.plansRead++;
  if (planText(taken) === planText(facts.plan)) return;
  totals.plansOtherwise++;
  if (totals.planDifferences.length < maxReported) totals.planDifferences.push({ ...facts, taken });
}
