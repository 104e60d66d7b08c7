// Trains a small character-level transformer on four sonnets, on several numbers of ranks, and draws the losses.
//
//     npm run example:train                                   1, 4 and 8 simulated ranks
//     node examples/train.mjs --backend nccl --ranks 8        8 GPUs
//     node examples/train.mjs --help
//
// Every number of ranks takes the same windows of text in each step, so the curves lie on each other: how the samples are
// divided changes nothing but the last bits.

import { readFileSync, writeFileSync } from "node:fs";
import { createWorld } from "twinccl";
import { adamW, cosine, DataParallel, Optimizer, Random, warmUp } from "twinccl/parallel";
import { transformer } from "twinccl/parallel/models";
import { listOf, oneOf, options, output, whole } from "../tools/options.mjs";

const backends = {
  sim: async () => (await import("twinccl/sim")).sim(),
  nccl: async () => (await import("twinccl/nccl")).nccl(),
};

const plot = {
  ...output,
  label: "FILE|none",
  read: (given) => (given === "none" ? given : output.read(given)),
};

const values = options({
  name: "train.mjs",
  about:
    "Trains a small transformer on four sonnets, on several numbers of ranks, and draws the losses.",
  options: {
    backend: {
      is: oneOf(...Object.keys(backends)),
      default: "sim",
      help: "simulated ranks, or a GPU for each rank",
    },
    ranks: { is: listOf(whole(1)), default: "1,4,8", help: "numbers of ranks, one run each" },
    steps: { is: whole(1), default: "120", help: "of every run" },
    plot: { is: plot, default: "training-loss.svg", help: "an SVG; none draws nothing" },
  },
});
const { steps, ranks: rankCounts } = values;

const text = readFileSync(new URL("sonnets.txt", import.meta.url), "utf8");
const alphabet = [...new Set(text)].sort();
const tokens = Array.from(text, (character) => alphabet.indexOf(character));
const context = 32;
const windowsPerStep = 16;

/** The windows of text that rank `rank` of `size` takes in a step. */
function batchOf(step, rank, size) {
  const random = new Random(1, step);
  const starts = Array.from({ length: windowsPerStep }, () =>
    random.below(tokens.length - context),
  );
  const own = starts.filter((_, at) => at % size === rank);
  const windows = own.flatMap((start) => tokens.slice(start, start + context + 1));
  return own.length === 0 ? [] : [{ tokens: windows, sequences: own.length }];
}

/** The program of one rank. */
async function train(comm) {
  const shape = { vocabulary: alphabet.length, context, width: 32, heads: 4, blocks: 2 };
  const model = transformer({ ...shape, seed: 7 });
  const trainer = await DataParallel.create(comm, model.parameters, { maxGradientNorm: 1 });
  const after = cosine({ peak: 0.01, minimum: 0.001, steps });
  const optimizer = new Optimizer(
    model.parameters,
    adamW({ learningRate: warmUp({ steps: 10, start: 0.1, after }) }),
  );
  const losses = [];
  for (let step = 0; step < steps; step++) {
    const batch = batchOf(step, comm.rank, comm.size);
    const stats = await trainer.step(batch, (each, ready) => model.backward(each, ready));
    optimizer.step();
    losses.push(stats.loss);
    if (comm.rank === 0) report(comm.size, stats);
  }
  return { losses, generated: comm.rank === 0 ? continued(model, "When ") : "" };
}

/** The model's continuation of a beginning, always taking the likeliest character. */
function continued(model, beginning) {
  const written = Array.from(beginning, (character) => alphabet.indexOf(character));
  while (written.length < 80) {
    const logits = model.logits(written.slice(-context));
    const last = logits.subarray(logits.length - alphabet.length);
    written.push(last.indexOf(Math.max(...last)));
  }
  return written.map((token) => alphabet[token]).join("");
}

function report(size, { step, loss, gradientNorm, stepMs }) {
  const line =
    `${ranksText(size)}: step ${step} of ${steps}, loss ${loss.toFixed(4)}, ` +
    `gradient norm ${gradientNorm.toFixed(3)}, ${stepMs.toFixed(0)} ms`;
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${line}`);
  else if (step === 1 || step % 25 === 0) process.stderr.write(`${line}\n`);
}

const ranksText = (size) => `${size} rank${size === 1 ? "" : "s"}`;

const curves = [];
for (const size of rankCounts) {
  const backend = await backends[values.backend]();
  const world = await createWorld({ backend, size });
  try {
    const [{ losses, generated }] = await world.run(train);
    if (process.stderr.isTTY) process.stderr.write("\r\x1b[K");
    const [first, last] = [losses[0], losses.at(-1)];
    console.log(`${ranksText(size)}: loss ${first.toFixed(4)} -> ${last.toFixed(4)}`);
    if (curves.length === 0) console.log(`generated: ${JSON.stringify(generated)}`);
    curves.push({ name: ranksText(size), losses });
  } finally {
    await world.close();
  }
}
if (values.plot !== "none") {
  const { lossPlot } = await import("./loss-plot.mjs");
  const title = `${alphabet.length} characters, ${values.backend}`;
  writeFileSync(values.plot, lossPlot(curves, title));
  console.log(`drawn in ${values.plot}`);
}
