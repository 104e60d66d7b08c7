// Compares the WebGPU executor with cpu() on this machine's adapter, bit by bit, on random calls under NCCL's plans, until
// so many elements were compared or the time is over; those of symmetric kernels come on top:
// npm run verify:webgpu -- --help
// Every number that is printed is counted: an element once, not once for each rank. Exit status: 0 when nothing differs
// and enough was compared, 1 when not, 2 where it cannot run.
import { writeFileSync } from "node:fs";
import { build, isStale } from "./build.mjs";
import { listOf, number, options, output, whole } from "./options.mjs";

const values = options({
  name: "verify:webgpu",
  about: "Compares the WebGPU executor with cpu() on random calls, bit by bit.",
  options: {
    elements: { is: whole(), default: "100000000", help: "to compare" },
    seconds: { is: number(), default: "500", help: "at most" },
    seed: { is: whole(), default: String(Date.now() % 1_000_000), help: "of the calls" },
    ranks: { is: listOf(whole(1)), default: "2,3,5,8", help: "numbers of ranks" },
    out: { is: output, help: "keeps what was found as JSON" },
  },
});
const print = (text) => process.stdout.write(`${text}\n`);
const { elements, seconds, seed, ranks: sizes } = values;
if (isStale() && !build()) process.exit(2);

const { cpu, sim } = await import("../dist/backends/sim/index.js");
const { webgpu } = await import("../dist/backends/sim/executors/webgpu/index.js");
const { environment, environmentText } = await import("../dist/bench/index.js");
const { propertyRun } = await import("./verify-gpu/property.mjs");
const { symmetricRun } = await import("./verify-gpu/symmetric.mjs");

// Keeps the device and its kernels from one setting to the next.
const executor = webgpu({ keepDevice: true });
const probe = await executor.probe();
if (!probe.ok) {
  print(`verify:webgpu: ${probe.reason}`);
  process.exit(2);
}
const { adapter, nativeAdd } = executor;
print(`# ${environmentText(environment())}`);
print(`# ${adapter}, native addition trusted for: ${JSON.stringify(nativeAdd)}`);
print(`# ranks ${sizes.join(", ")}, seed ${seed}`);

const makeSim = (pin) => sim({ like: "nccl-2.28", plan: pin, executor: cpu() });
const makeGpu = (pin) => sim({ like: "nccl-2.28", plan: pin, executor });
const began = performance.now();
const left = () => seconds - (performance.now() - began) / 1000;
const common = { sizes, buffers: {}, makeGpu, makeSim };

const symmetric = await symmetricRun({
  ...{ ...common, seed, seconds: seconds / 5, enough: elements / 200 },
  onProgress: () => {},
});
const runs = [];
let drawn = 0;
for (let slice = 0; drawn < elements && left() > 0; slice++) {
  const run = await propertyRun({
    ...{ ...common, seed: seed + slice, seconds: Math.min(20, left()) },
    onProgress: () => {},
  });
  runs.push(run);
  drawn += run.elements;
  print(`${drawn} elements after ${((performance.now() - began) / 1000).toFixed(0)} s`);
}
executor.release();

const sum = (pick) => runs.reduce((total, run) => total + pick(run), 0);
for (const [title, key] of [
  ["type", "byDtype"],
  ["operator", "byOperator"],
  ["ranks", "bySize"],
  ["plan", "byPlan"],
]) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run[key])))].sort();
  for (const name of names) {
    const total = sum((run) => run[key][name] ?? 0);
    print(`${title.padEnd(9)}${name.padEnd(32)} ${String(total).padStart(14)} elements`);
  }
}
for (const [kernel, total] of Object.entries(symmetric.byKernel).sort()) {
  print(`symmetric ${kernel.padEnd(31)} ${String(total).padStart(14)} elements`);
}
const differences = [...symmetric.differences, ...runs.flatMap((run) => run.differences)];
const text = (value) =>
  JSON.stringify(value, (_, each) => (typeof each === "bigint" ? String(each) : each));
for (const each of differences) print(`different ${text(each)}`);
const differentCalls = symmetric.differentCalls + sum((run) => run.differentCalls);
const calls = symmetric.calls + sum((run) => run.calls);
const compared = symmetric.elements + drawn;
const ordered = sum((run) => run.orderSensitiveElements);
print(
  `bits: ${compared} elements in ${calls} calls, ${ordered} sensitive to order: ${differentCalls} calls differ`,
);
const fine = differentCalls === 0 && drawn >= elements;
if (values.out !== undefined) {
  const wallMs = performance.now() - began;
  const facts = { ...environment(), adapter, nativeAdd, seed, sizes, wallMs, fine };
  writeFileSync(values.out, `${text({ ...facts, elements: compared, calls, runs, symmetric })}\n`);
}
const verdict = differentCalls > 0 ? "something differs" : fine ? "nothing differs" : "too few";
print(`verify:webgpu: ${verdict}, seed ${seed}`);
process.exitCode = fine ? 0 : 1;
