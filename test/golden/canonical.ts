/** The canonical form of recorded outputs: one NaN for each type, and for min and max one zero. */
import { bytesOfGolden, type GoldenDType } from "./inputs.ts";

/** Magnitude of infinity (or of the largest number, where there is none) and the one NaN, of narrow floats. */
const narrow: Partial<Record<GoldenDType, readonly [last: number, nan: number]>> = {
  f16: [0x7c00, 0x7e00],
  bf16: [0x7f80, 0x7fc0],
  e4m3: [0x7e, 0x7f],
  e5m2: [0x7c, 0x7e],
};

/** Rewrites `count` elements from element `first` on; integers stay as they are. */
export function canonicalise(
  memory: ArrayBuffer,
  first: number,
  count: number,
  dt: GoldenDType,
  dropsSignOfZero: boolean,
): void {
  if (dt.startsWith("i") || dt.startsWith("u")) return;
  const at = first * bytesOfGolden(dt);
  if (dt === "f32") floats(new Int32Array(memory, at, count), dropsSignOfZero);
  else if (dt === "f64") doubles(new Int32Array(memory, at, 2 * count), dropsSignOfZero);
  else {
    const [last, nan] = narrow[dt] ?? [0, 0];
    if (bytesOfGolden(dt) === 2)
      halves(new Uint16Array(memory, at, count), last, nan, dropsSignOfZero);
    else bytes(new Uint8Array(memory, at, count), last, nan, dropsSignOfZero);
  }
}

function floats(words: Int32Array, dropsSignOfZero: boolean): void {
  for (let i = 0; i < words.length; i++) {
    const magnitude = (words[i] as number) & 0x7fff_ffff;
    if (magnitude > 0x7f80_0000) words[i] = 0x7fc0_0000;
    else if (magnitude === 0 && dropsSignOfZero) words[i] = 0;
  }
}

function doubles(words: Int32Array, dropsSignOfZero: boolean): void {
  for (let i = 0; i < words.length; i += 2) {
    const low = words[i] as number;
    const high = (words[i + 1] as number) & 0x7fff_ffff;
    if (high > 0x7ff0_0000 || (high === 0x7ff0_0000 && low !== 0)) {
      words[i] = 0;
      words[i + 1] = 0x7ff8_0000;
    } else if (high === 0 && low === 0 && dropsSignOfZero) words[i + 1] = 0;
  }
}

function halves(words: Uint16Array, last: number, nan: number, dropsSignOfZero: boolean): void {
  for (let i = 0; i < words.length; i++) {
    const magnitude = (words[i] as number) & 0x7fff;
    if (magnitude > last) words[i] = nan;
    else if (magnitude === 0 && dropsSignOfZero) words[i] = 0;
  }
}

function bytes(words: Uint8Array, last: number, nan: number, dropsSignOfZero: boolean): void {
  for (let i = 0; i < words.length; i++) {
    const magnitude = (words[i] as number) & 0x7f;
    if (magnitude > last) words[i] = nan;
    else if (magnitude === 0 && dropsSignOfZero) words[i] = 0;
  }
}
