/** The tables of `twinccl doctor`. */
import type { GpuReport, LibraryReport } from "../backends/nccl/discovery/examine.ts";
import { linkLegend } from "../backends/nccl/discovery/link-kinds.ts";

/** Lines with aligned columns; the last column is as long as it is. */
export function table(rows: readonly (readonly string[])[]): string {
  const widths: number[] = [];
  for (const row of rows) {
    row.forEach((cell, at) => {
      widths[at] = Math.max(widths[at] ?? 0, cell.length);
    });
  }
  const line = (row: readonly string[]): string =>
    row
      .map((cell, at) => (at === row.length - 1 ? cell : cell.padEnd(widths[at] ?? 0)))
      .join("  ")
      .trimEnd();
  return rows.map((row) => `${line(row)}\n`).join("");
}

/** Every path that was tried. */
export function librariesText(libraries: readonly LibraryReport[]): string {
  const rows = libraries.flatMap(({ library, trials }) =>
    trials.length === 0
      ? [[library, "not looked for"]]
      : trials.map(({ path, why, reason }) => [library, path, why, reason]),
  );
  return table([["library", "path", "tried because", "outcome"], ...rows]);
}

/** The GPUs, what connects them, and which of them reach each other's memory. */
export function gpuText(gpus: readonly GpuReport[]): string {
  if (gpus.length === 0) return "";
  const list = gpus.map((gpu) => [
    String(gpu.index),
    gpu.pciBusId,
    gpu.computeCapability,
    gpu.memory_bytes === null ? "unknown" : `${(gpu.memory_bytes / 2 ** 30).toFixed(1)} GiB`,
    gpu.nvlinks === null ? "unknown" : String(gpu.nvlinks),
    gpu.name ?? "unknown",
  ]);
  const head = ["GPU", "bus id", "compute", "memory", "NVLinks", "name"];
  const names = gpus.map(({ index }) => String(index));
  const links = gpus.map(({ index, links }) => [
    String(index),
    ...links.map((kind) => kind ?? "unknown"),
  ]);
  const reach = gpus.map(({ index, peers }) => [
    String(index),
    ...peers.map((reaches, peer) => (peer === index ? "." : reaches ? "P2P" : "no")),
  ]);
  return [
    table([head, ...list]),
    table([["link", ...names], ...links]),
    legendText(gpus),
    table([["reaches", ...names], ...reach]),
  ]
    .map((part) => `\n${part}`)
    .join("");
}

/** The meaning of the letters of those links that occur. */
function legendText(gpus: readonly GpuReport[]): string {
  const kinds = new Set(
    gpus.flatMap(({ links }) => links.map((kind) => kind?.replace(/^NV\d+$/, "NV#"))),
  );
  return table(linkLegend.filter(([letters]) => kinds.has(letters)));
}
