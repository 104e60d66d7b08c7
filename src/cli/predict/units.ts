/** Sizes and times in words. */
import { parseSize } from "../../bench/sizes.ts";

/** A size with at most three digits: `3.43 MiB`. */
export function sizeLabel(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = bytes < 1 ? 0 : Math.min(4, Math.floor(Math.log2(bytes) / 10));
  return `${Number((bytes / 1024 ** power).toPrecision(3))} ${units[power]}`;
}

/** A size with at most three digits, and in bytes where those are another size: 16,388 bytes are no 16 KiB. */
export function exactLabel(bytes: number): string {
  const label = sizeLabel(bytes);
  const read = parseSize(label.replace(" ", ""));
  return read === undefined || read === bytes ? label : `${bytes} B`;
}

/** A time with its unit, with at most `digits` digits: `12.3 µs`. */
export function timeLabel(ns: number, digits = 4): string {
  const units = [["s", 1e9] as const, ["ms", 1e6] as const, ["µs", 1e3] as const];
  const [unit, size] = units.find((each) => ns >= each[1]) ?? ["µs", 1e3];
  return `${Number((ns / size).toPrecision(digits))} ${unit}`;
}
