/** Virtual times as people read them. */

const units = [
  { ps: 1e9, name: "ms" },
  { ps: 1e6, name: "µs" },
  { ps: 1e3, name: "ns" },
  { ps: 1, name: "ps" },
] as const;

/** A time in the unit of a whole film, with as many digits as matter there. */
export function timeText(timePs: number, endPs: number): string {
  const unit = units.find(({ ps }) => endPs >= ps) ?? units[3];
  const digits = unit.ps === 1 ? 0 : endPs / unit.ps >= 100 ? 1 : 3;
  return `${(timePs / unit.ps).toFixed(digits)} ${unit.name}`;
}

/** Round times for an axis: about `wanted` of them. */
export function ticks(endPs: number, wanted: number): number[] {
  if (endPs <= 0) return [];
  const rough = endPs / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power;
  return Array.from({ length: Math.floor(endPs / step) + 1 }, (_, i) => i * step);
}

/** A tick's time, short. */
export function tickText(timePs: number, endPs: number): string {
  const unit = units.find(({ ps }) => endPs >= ps) ?? units[3];
  return `${Number((timePs / unit.ps).toPrecision(6))}${timePs === 0 ? ` ${unit.name}` : ""}`;
}
