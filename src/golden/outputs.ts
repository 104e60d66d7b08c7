/**
 * Outputs as files hold them: in a canonical form, as hashes and as hexadecimal bytes, one for all ranks or one for each.
 *
 * The canonical form of a reduction's result has one NaN for each type and, after a minimum or maximum, one zero. Libraries may
 * differ only in these two.
 */
import { createHash } from "node:crypto";
import { bytesOfView } from "../api/bits.ts";
import { type DType, dtypeInfo, type HostArray } from "../api/index.ts";
import type { GoldenCase } from "./case.ts";

/** Outputs of one call by rank. */
export type Outputs = readonly (HostArray | undefined)[];

/** Outputs in canonical form. Ranks with the same bits share one array: an all-reduce has as many copies as ranks. */
export function canonicalOutputs(outputs: Outputs, { dtype, op }: GoldenCase): Outputs {
  let bits: Buffer | undefined;
  let canonical: HostArray | undefined;
  return outputs.map((output) => {
    if (output === undefined) return undefined;
    const own = Buffer.from(output.buffer, output.byteOffset, output.byteLength);
    if (bits?.equals(own) !== true) {
      bits = own;
      canonical = canonicalForm(output.slice(), dtype, op);
    }
    return canonical;
  });
}

/** Hash of each rank's output; one that ranks share is hashed once. */
export function hashesOf(outputs: Outputs): (string | undefined)[] {
  let known: HostArray | undefined;
  let hash = "";
  return outputs.map((output) => {
    if (output === undefined) return undefined;
    if (output !== known) {
      known = output;
      hash = hashOf(bytesOfView(output));
    }
    return hash;
  });
}

/** Bytes of one update of a hash: Node.js takes less than 2 GiB at once. */
const updateBytes = 2 ** 30;

function hashOf(bytes: Uint8Array): string {
  const hash = createHash("sha256");
  for (let at = 0; at < bytes.length; at += updateBytes) {
    hash.update(bytes.subarray(at, at + updateBytes));
  }
  return hash.digest("hex").slice(0, 16);
}

/** The output of a rank that a file requires; `undefined` where it has no output. */
export function recordedOutput(
  { collective, root }: GoldenCase,
  recorded: string | readonly string[],
  rank: number,
): string | undefined {
  if (collective === "reduce" && rank !== root) return undefined;
  return typeof recorded === "string" ? recorded : recorded[rank];
}

/** The texts of a file by rank: a list for a reduce-scatter, else the one that all ranks with an output share. */
export function shared(
  { collective }: GoldenCase,
  texts: readonly (string | undefined)[],
): string | readonly string[] {
  const there = texts.filter((text) => text !== undefined);
  return collective === "reduceScatter" ? there : (there[0] ?? "");
}

/** All bytes in hexadecimal. */
export function hexOf(output: HostArray): string {
  return Buffer.from(bytesOfView(output)).toString("hex");
}

/** Magnitude of infinity (or of the largest number, where there is none) and the one NaN, of narrow floats. */
const narrow: Partial<Record<DType, readonly [last: number, nan: number]>> = {
  float16: [0x7c00, 0x7e00],
  bfloat16: [0x7f80, 0x7fc0],
  float8e4m3: [0x7e, 0x7f],
  float8e5m2: [0x7c, 0x7e],
};

/** Rewrites an array in place and returns it; integers are unchanged. */
export function canonicalForm<A extends HostArray>(array: A, dtype: DType, op: string): A {
  if (dtypeInfo[dtype].kind !== "float") return array;
  const { buffer, byteOffset, length } = array;
  const dropsSignOfZero = op === "min" || op === "max";
  const [last, nan] = narrow[dtype] ?? [0, 0];
  if (dtype === "float32") floats(new Int32Array(buffer, byteOffset, length), dropsSignOfZero);
  else if (dtype === "float64") {
    doubles(new Int32Array(buffer, byteOffset, 2 * length), dropsSignOfZero);
  } else if (dtypeInfo[dtype].bytes === 2) {
    halves(new Uint16Array(buffer, byteOffset, length), last, nan, dropsSignOfZero);
  } else bytes(new Uint8Array(buffer, byteOffset, length), last, nan, dropsSignOfZero);
  return array;
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
