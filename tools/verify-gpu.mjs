// Compares this machine's GPUs with the simulation, bit by bit, on random calls, and NCCL's choices with the predicted:
// npm run verify:gpu -- --help
// Every number that is printed is counted: an element once, not once for each rank. Exit status: 0 when nothing differs,
// 1 when something does, 2 where it cannot run.
import { writeFileSync } from "node:fs";
import { build, isStale } from "./build.mjs";
import { listOf, number, options, output, whole } from "./options.mjs";

const values = options({
  name: "verify:gpu",
  about: "Compares this machine's GPUs with the simulation on random calls, bit by bit.",
  options: {
    seconds: { is: number(), default: "120", help: "for random calls" },
    seed: { is: whole(), default: String(Date.now() % 1_000_000), help: "of the calls" },
    sizes: { is: whole(), default: "500", help: "sizes of each kind of call for NCCL's choices" },
    ranks: { is: listOf(whole(2)), help: "numbers of ranks; all that there are GPUs for" },
    out: { is: output, help: "keeps what was found as JSON" },
    "small-buffers": { help: "NCCL's buffers small: many loops in a channel" },
    symmetric: { is: whole(), default: "0", help: "elements of symmetric kernels to compare" },
    rehearse: { help: "simulates the GPUs too, to try the command itself" },
  },
});
const print = (text) => process.stdout.write(`${text}\n`);
const { seconds, seed, sizes: perKind } = values;
if (isStale() && !build()) process.exit(2);

const { nccl } = await import("../dist/backends/nccl/index.js");
const { sim } = await import("../dist/backends/sim/index.js");
const { environment, environmentText } = await import("../dist/bench/index.js");
const { propertyRun } = await import("./verify-gpu/property.mjs");
const { choiceCheck } = await import("./verify-gpu/choice.mjs");
const { symmetricRun } = await import("./verify-gpu/symmetric.mjs");

const makeSim = (pin) => sim({ like: "nccl-2.28", plan: pin });
const makeGpu = values.rehearse ? makeSim : (pin) => nccl({ plan: pin, readPlan: true });

/** Numbers of ranks from 2 to the GPUs that are here. */
async function sizesHere() {
  if (values.ranks !== undefined) return values.ranks;
  if (values.rehearse) return [2, 3, 4];
  const sizes = [];
  for (let size = 2; size <= 8; size++) {
    const { ok, reason } = await nccl().probe({ size, name: "verify" });
    if (ok) sizes.push(size);
    else if (size === 2) print(`verify:gpu: needs 2 GPUs: ${reason}`);
    if (!ok) break;
  }
  return sizes;
}

const sizes = await sizesHere();
if (sizes.length === 0) process.exit(2);
// Small buffers make many loops in a channel. NCCL reads their sizes once per process.
const buffers = values["small-buffers"]
  ? { buffSize: 65_536, llBuffSize: 32_768, ll128BuffSize: 122_880 }
  : {};
const began = performance.now();
const progress = (text) => {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
};

print(`# ${environmentText(environment())}`);
print(`# ranks ${sizes.join(", ")}, seed ${seed}, buffers ${JSON.stringify(buffers)}`);
const choice =
  perKind === 0
    ? undefined
    : await choiceCheck({
        ...{ sizes, seed, perKind, buffers, makeGpu, makeSim },
        onProgress: ({ checked }) => progress(`choice: ${checked} calls`),
      });
progress("");
if (choice !== undefined) {
  for (const [kind, { checked, agreed }] of Object.entries(choice.byKind)) {
    print(`choice   ${kind.padEnd(30)} ${agreed} of ${checked} as predicted`);
  }
  for (const each of choice.disagreements) {
    print(
      `choice   ${each.kind}, ${each.bytes} B: ${each.predicted} predicted, ${each.taken} taken`,
    );
  }
  print(
    `choice: ${choice.agreed} of ${choice.checked} as predicted, ${choice.notLogged} not logged`,
  );
}

const totals = await propertyRun({
  ...{ sizes, seconds, seed, buffers, makeGpu, makeSim },
  onProgress: ({ elements, settings }) =>
    progress(`${settings} settings, ${(elements / 1e6).toFixed(0)} million elements`),
});
progress("");
for (const [title, table] of [
  ["type", totals.byDtype],
  ["operator", totals.byOperator],
  ["ranks", totals.bySize],
  ["plan", totals.byPlan],
]) {
  for (const [name, elements] of Object.entries(table).sort(([a], [b]) => (a < b ? -1 : 1))) {
    print(`${title.padEnd(9)}${name.padEnd(32)} ${String(elements).padStart(14)} elements`);
  }
}
for (const each of totals.differences) print(`different ${JSON.stringify(each)}`);
for (const each of totals.planDifferences) print(`plan otherwise ${JSON.stringify(each)}`);
print(
  `bits: ${totals.elements} elements in ${totals.calls} calls under ${totals.settings} settings (${totals.pinnedRings} with a drawn ring), ` +
    `${totals.orderSensitiveElements} elements sensitive to order: ${totals.differentCalls} calls differ`,
);
print(
  `plans: ${totals.plansRead - totals.plansOtherwise} of ${totals.plansRead} logged as predicted; ` +
    `${totals.resultsEqualButForNaN} results equal but for the bits of float64 NaNs`,
);
const enough = values.symmetric;
const symmetric =
  enough > 0
    ? await symmetricRun({
        ...{ sizes, seconds, seed, enough, makeGpu, makeSim },
        onProgress: ({ elements }) =>
          progress(`symmetric: ${(elements / 1e6).toFixed(0)} million elements`),
      })
    : undefined;
progress("");
if (symmetric !== undefined) {
  for (const [kernel, elements] of Object.entries(symmetric.byKernel).sort()) {
    print(`symmetric ${kernel.padEnd(31)} ${String(elements).padStart(14)} elements`);
  }
  for (const each of symmetric.differences) print(`different ${JSON.stringify(each)}`);
  print(
    `symmetric: ${symmetric.elements} elements in ${symmetric.calls} calls: ${symmetric.differentCalls} calls differ; ` +
      `${symmetric.plansRead - symmetric.plansOtherwise} of ${symmetric.plansRead} plans logged as predicted`,
  );
}
const fine =
  (symmetric?.differentCalls ?? 0) + (symmetric?.plansOtherwise ?? 0) === 0 &&
  totals.differentCalls + totals.plansOtherwise === 0 &&
  (choice === undefined || choice.disagreements.length + choice.notLogged === 0 || values.rehearse);
const document = {
  ...environment(),
  seed,
  seconds,
  sizes,
  buffers,
  wallMs: performance.now() - began,
};
if (values.out !== undefined) {
  const json = JSON.stringify(
    { ...document, fine, choice, property: totals, symmetric },
    replaceBigInt,
    2,
  );
  writeFileSync(values.out, `${json}\n`);
}
print(`verify:gpu: ${fine ? "nothing differs" : "something differs"}, seed ${seed}`);
process.exitCode = fine ? 0 : 1;

function replaceBigInt(_, value) {
  return typeof value === "bigint" ? String(value) : value;
}
