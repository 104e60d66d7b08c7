/**
 * Draws a step both ways in one virtual time: a band a rank, with backward above and the buckets that it is summed in below.
 *
 * A self-contained SVG that follows the reader's light or dark preference.
 */
import type { Overlap, RankStep, Span } from "./overlap-run.ts";
import { longest } from "./overlap-run.ts";

const left = 64;
const width = 960;
const rowHeight = 16;
const bandHeight = 2 * rowHeight + 8;
const titleHeight = 30;
const axisHeight = 24;

const style = `
  text { font: 11px system-ui, sans-serif; fill: #444 } .title { font-weight: 600 }
  .even { fill: #d99a2b } .odd { fill: #e9be74 } .bucket { fill: #3b82c4 } .end { fill: #2f9e6e }
  .inside { fill: #fff; text-anchor: middle } .odd + .inside, .even + .inside { fill: #3a2a08 }
  .grid { stroke: #e3e3e3 } .limit { stroke: #c0392b; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #bbb } .grid { stroke: #333 } .limit { stroke: #ff8a7a }
  }`;

/** The picture of a step: buckets sent after backward above, and buckets sent during backward below. */
export function overlapSvg(overlap: Overlap, title: string): string {
  const { after, during, communicationNs } = overlap;
  const end = longest(after);
  const x = (ns: number): number => left + (ns / end) * (width - left - 24);
  const panelHeight = titleHeight + after.length * bandHeight;
  const height = 2 * panelHeight + axisHeight;
  const panel = (at: number, name: string, ranks: readonly RankStep[]): string[] => {
    const top = at * panelHeight + titleHeight;
    const line = (ns: number): string =>
      `<line class="limit" x1="${fixed(x(ns))}" x2="${fixed(x(ns))}" y1="${top - 4}" y2="${top + ranks.length * bandHeight - 4}"/>`;
    return [
      `<text class="title" x="${left}" y="${top - 12}">${name}: ${fixed(longest(ranks) / 1000)} µs</text>`,
      ...ranks.flatMap((step, rank) => band(step, rank, top + rank * bandHeight, x)),
      line(communicationNs),
      line(longest(ranks)),
    ];
  };
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img">`,
    `<title>${title}</title>`,
    `<style>${style}</style>`,
    ...grid(end, x, height),
    ...panel(0, "Buckets sent after backward", after),
    ...panel(1, "Buckets sent while backward runs", during),
    "</svg>\n",
  ].join("\n");
}

function band(step: RankStep, rank: number, top: number, x: (ns: number) => number): string[] {
  const backward = blocksOf(step.work).map((block, at) =>
    rectangle(block, at % 2 === 0 ? "even" : "odd", block.name, top, x),
  );
  const calls = step.calls.map((call, at) => {
    const isBucket = call.name.startsWith("allReduce");
    return rectangle(call, isBucket ? "bucket" : "end", String(at + 1), top + rowHeight, x);
  });
  return [`<text x="8" y="${top + rowHeight + 3}">rank ${rank}</text>`, ...backward, ...calls];
}

/** The spans of one block of the model, joined. */
function blocksOf(work: readonly Span[]): Span[] {
  const blocks: Span[] = [];
  for (const { name, beginNs, endNs } of work) {
    const [block = ""] = name.split(".");
    const last = blocks.at(-1);
    if (last?.name === block) blocks[blocks.length - 1] = { ...last, endNs };
    else blocks.push({ name: block, beginNs, endNs });
  }
  return blocks;
}

/** A bar, with its label where that fits. */
function rectangle(
  { name, beginNs, endNs }: Span,
  kind: string,
  label: string,
  top: number,
  x: (ns: number) => number,
): string {
  const wide = Math.max(1, x(endNs) - x(beginNs) - 1);
  const tip = `${name}: ${fixed(beginNs / 1000)} to ${fixed(endNs / 1000)} µs`;
  const bar = `<rect class="${kind}" x="${fixed(x(beginNs))}" y="${top + 1}" width="${fixed(wide)}" height="${rowHeight - 2}" rx="2"><title>${tip}</title></rect>`;
  if (wide < 8 * label.length) return bar;
  return `${bar}<text class="inside" x="${fixed(x(beginNs) + wide / 2)}" y="${top + 12}">${label}</text>`;
}

/** Vertical lines every fifth of a millisecond. */
function grid(endNs: number, x: (ns: number) => number, height: number): string[] {
  const stepNs = 200_000;
  return Array.from({ length: Math.floor(endNs / stepNs) + 1 }, (_, at) => {
    const place = fixed(x(at * stepNs));
    return (
      `<line class="grid" x1="${place}" x2="${place}" y1="${titleHeight - 6}" y2="${height - axisHeight}"/>` +
      `<text x="${place}" y="${height - 8}" text-anchor="middle">${(at * stepNs) / 1000} µs</text>`
    );
  });
}

function fixed(value: number): string {
  return String(Number(value.toFixed(1)));
}
