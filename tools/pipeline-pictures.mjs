/**
 * Draws pipelines as they ran on the virtual clock into docs/images, and prints their bubbles.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { createWorld } from "../dist/api/index.js";
import { cpu, sim, Trace } from "../dist/backends/sim/index.js";
import { idealBubble, measureBubble, PipelineParallel } from "../dist/parallel/index.js";
import { options } from "./options.mjs";

const { check } = options({
  name: "docs:pipeline",
  about: "Draws pipelines as they ran into docs/images, and prints their bubbles.",
  options: { check: { help: "writes nothing, and fails where a picture is out of date" } },
});

const images = fileURLToPath(new URL("../docs/images/", import.meta.url));
const work = { forwardNs: 1000, backwardNs: 2000 };
const link = { latencyNs: 0, gigabytesPerSecond: 1e9 };
const percent = (share) => `${(100 * share).toFixed(1)} %`;

/** Numbers in, numbers out: the work is on the virtual clock alone. */
function stage(comm) {
  const one = new Float32Array(1);
  const totals = comm.rank === comm.size - 1 ? { loss: 0, samples: 1 } : undefined;
  return {
    inputLength: () => 1,
    forward: () => ({ output: one, totals, backward: () => one }),
  };
}

/** One step: what every rank computed when, how idle ranks were, and how many micro-batches each held. */
async function run(schedule, stages, microBatches) {
  const trace = new Trace();
  const world = await createWorld({ backend: sim({ trace, link, executor: cpu() }), size: stages });
  const steps = await world.run(async (comm) => {
    const pipeline = await PipelineParallel.create(comm, stage(comm), { schedule, work });
    return pipeline.backward(new Array(microBatches).fill(0), () => {});
  });
  await world.close();
  const events = trace.toChrome().traceEvents;
  const computed = events.filter(({ name }) => /^(forward|backward) \d+$/.test(name));
  return { ...measureBubble(events), computed, held: steps.map(({ held }) => held) };
}

const style = `
  text { font: 11px system-ui, sans-serif; fill: #444 } .in { fill: #fff; text-anchor: middle }
  .idle { fill: #eceff3 } .forward { fill: #3b82c4 } .backward { fill: #2f9e6e }
  @media (prefers-color-scheme: dark) { text { fill: #bbb } .in { fill: #fff } .idle { fill: #2a3038 } }`;

/** A row a stage, a box for every forward and backward with the number of its micro-batch. */
function picture(title, { computed, spanNs, held }) {
  const [left, width, row, top] = [64, 960, 26, 30];
  const begin = Math.min(...computed.map(({ ts }) => ts));
  const x = (us) => left + ((us * 1000) / spanNs) * (width - left - 90);
  const place = (rank, from, to) =>
    `x="${from.toFixed(1)}" y="${top + rank * row}" width="${Math.max(0, to - from - 1).toFixed(1)}" height="${row - 4}"`;
  const rows = held.map(
    (most, rank) =>
      `<text x="8" y="${top + rank * row + 15}">stage ${rank}</text>` +
      `<rect class="idle" ${place(rank, x(0), x(spanNs / 1000))}/>` +
      `<text x="${width - 84}" y="${top + rank * row + 15}">keeps ${most}</text>`,
  );
  const boxes = computed.map(({ name, pid, ts, dur }) => {
    const [kind, number] = name.split(" ");
    const [from, to] = [x(ts - begin), x(ts - begin + dur)];
    const label = `<text class="in" x="${((from + to) / 2).toFixed(1)}" y="${top + pid * row + 15}">${number}</text>`;
    return `<rect class="${kind}" ${place(pid, from, to)}><title>${name}</title></rect>${label}`;
  });
  const height = top + held.length * row + 8;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img">`,
    `<title>${title}</title>`,
    `<style>${style}</style>`,
    `<text x="8" y="16">${title}</text>`,
    ...rows,
    ...boxes,
    "</svg>\n",
  ].join("\n");
}

/** The bubble over stages and micro-batches, a line each; measured as dots on the formula's curves. */
function curves(measured) {
  const [left, width, height, top, bottom] = [56, 960, 320, 30, 36];
  const counts = Array.from({ length: 16 }, (_, at) => at + 1);
  const x = (count) => left + ((count - 1) / 15) * (width - left - 110);
  const y = (share) => height - bottom - share * (height - top - bottom);
  const colour = (stages) => `hsl(${210 - 30 * (stages - 2)} 60% 50%)`;
  const lines = [...measured].flatMap(([stages, shares]) => {
    const formula = counts.map(
      (count) => `${x(count).toFixed(1)},${y(idealBubble(stages, count)).toFixed(1)}`,
    );
    const dots = shares.map(
      (share, at) =>
        `<circle cx="${x(at + 1).toFixed(1)}" cy="${y(share).toFixed(1)}" r="3" fill="${colour(stages)}"/>`,
    );
    const end = y(shares.at(-1)) + 4;
    return [
      `<polyline points="${formula.join(" ")}" fill="none" stroke="${colour(stages)}"/>`,
      ...dots,
      `<text x="${width - 100}" y="${end.toFixed(1)}">${stages} stages</text>`,
    ];
  });
  const grid = [0, 0.25, 0.5, 0.75, 1].map(
    (share) =>
      `<line class="grid" x1="${left}" x2="${width - 110}" y1="${y(share)}" y2="${y(share)}"/>` +
      `<text x="12" y="${y(share) + 4}">${share * 100} %</text>`,
  );
  const ticks = counts.map(
    (count) => `<text x="${x(count) - 4}" y="${height - 18}">${count}</text>`,
  );
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img">`,
    "<title>Bubble of 1F1B by micro-batches</title>",
    `<style>${style} .grid { stroke: #ddd } @media (prefers-color-scheme: dark) { .grid { stroke: #333 } }</style>`,
    '<text x="8" y="16">bubble of 1F1B: measured on the virtual clock (dots) and (p − 1) / (m + p − 1) (lines)</text>',
    ...grid,
    ...ticks,
    `<text x="${width / 2 - 60}" y="${height - 4}">micro-batches in a step</text>`,
    ...lines,
    "</svg>\n",
  ].join("\n");
}

const files = new Map();
for (const schedule of ["gpipe", "1f1b"]) {
  const [stages, microBatches] = [4, 8];
  const done = await run(schedule, stages, microBatches);
  const title = `${schedule}: ${stages} stages, ${microBatches} micro-batches, bubble ${percent(done.share)}`;
  files.set(`pipeline-${schedule}.svg`, picture(title, done));
}
const measured = new Map();
for (let stages = 2; stages <= 8; stages++) {
  const shares = [];
  for (let count = 1; count <= 16; count++) shares.push((await run("1f1b", stages, count)).share);
  measured.set(stages, shares);
  console.log(`${stages} stages: ${shares.map(percent).join(", ")}`);
}
files.set("pipeline-bubble.svg", curves(measured));

for (const [name, text] of files) {
  if (!check) writeFileSync(images + name, text);
  else if (readFileSync(images + name, "utf8") !== text) {
    console.error(`out of date: docs/images/${name}; run: npm run docs:pipeline`);
    process.exitCode = 1;
  }
}
