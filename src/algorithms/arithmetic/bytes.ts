/**
 * int8 and uint8: they wrap at 8 bits, as a store to a byte does.
 *
 * Signed and unsigned share all bits of sum and product. They differ in comparing and in the
 * division that ends an average. Flipping the sign bit of both operands turns one order into the
 * other.
 */
import { type Chain, chainByFour, chainByOne, type FoldMethods, type Hop } from "./fold.ts";

type ByteHop = Hop<Uint8Array>;

/** Sum of bytes, and the average that divides it by `ranks` at the end. */
export function byteSum(average?: {
  readonly ranks: number;
  readonly signed: boolean;
}): FoldMethods {
  const passes = { two: addTwo, four: addFour, fourMore: addFourMore };
  const sum = methods(copy, add, add, chainByFour(copy, add, passes));
  if (average === undefined) return sum;
  const { ranks, signed } = average;
  const finish = (acc: Uint8Array, accAt: number, count: number): void =>
    divide(acc, accAt, count, ranks, signed ? 24 : 0);
  return { ...sum, finish };
}

/** Product of bytes. */
export function byteProd(): FoldMethods {
  return methods(copy, multiply, multiply, chainByOne(copy, multiply));
}

/** Minimum or maximum of bytes. */
export function byteExtreme(which: "min" | "max", signed: boolean): FoldMethods {
  // Complementing both operands turns a minimum into a maximum.
  const flip = (signed ? 0x80 : 0) ^ (which === "max" ? 0xff : 0);
  const pick: ByteHop = (acc, accAt, source, sourceAt, count) =>
    takeMin(acc, accAt, source, sourceAt, count, flip);
  return methods(copy, pick, pick, chainByOne(copy, pick));
}

/** Sum of bytes that are each multiplied by `scalar` first. */
export function byteScaledSum(scalar: number): FoldMethods {
  const begin: ByteHop = (acc, accAt, source, sourceAt, count) =>
    scale(acc, accAt, source, sourceAt, count, scalar);
  const hop: ByteHop = (acc, accAt, source, sourceAt, count) =>
    addScaled(acc, accAt, source, sourceAt, count, scalar);
  return methods(begin, hop, add, chainByOne(begin, hop));
}

function methods(
  begin: ByteHop,
  addContribution: ByteHop,
  addPartial: ByteHop,
  chain: Chain<Uint8Array>,
): FoldMethods {
  return { begin, addContribution, addPartial, chain, finish: () => {} };
}

function copy(
  acc: Uint8Array,
  accAt: number,
  source: Uint8Array,
  sourceAt: number,
  count: number,
): void {
  acc.set(source.subarray(sourceAt, sourceAt + count), accAt);
}

function add(
  acc: Uint8Array,
  accAt: number,
  source: Uint8Array,
  sourceAt: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    acc[accAt + i] = (acc[accAt + i] as number) + (source[sourceAt + i] as number);
  }
}

function addTwo(acc: Uint8Array, a: Uint8Array, b: Uint8Array): void {
  for (let i = 0; i < acc.length; i++) {
    acc[i] = (a[i] as number) + (b[i] as number);
  }
}

function addFour(
  acc: Uint8Array,
  a: Uint8Array,
  b: Uint8Array,
  c: Uint8Array,
  d: Uint8Array,
): void {
  for (let i = 0; i < acc.length; i++) {
    const ab = (a[i] as number) + (b[i] as number);
    acc[i] = ab + (c[i] as number) + (d[i] as number);
  }
}

function addFourMore(
  acc: Uint8Array,
  a: Uint8Array,
  b: Uint8Array,
  c: Uint8Array,
  d: Uint8Array,
): void {
  for (let i = 0; i < acc.length; i++) {
    const ab = (a[i] as number) + (b[i] as number);
    const cd = (c[i] as number) + (d[i] as number);
    acc[i] = (acc[i] as number) + ab + cd;
  }
}

function multiply(
  acc: Uint8Array,
  accAt: number,
  source: Uint8Array,
  sourceAt: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    acc[accAt + i] = (acc[accAt + i] as number) * (source[sourceAt + i] as number);
  }
}

function takeMin(
  acc: Uint8Array,
  accAt: number,
  source: Uint8Array,
  sourceAt: number,
  count: number,
  flip: number,
): void {
  for (let i = 0; i < count; i++) {
    const a = (acc[accAt + i] as number) ^ flip;
    const b = (source[sourceAt + i] as number) ^ flip;
    // b + (a - b) when a comes first, else b: no data-dependent branch.
    acc[accAt + i] = (b + ((a - b) & ((a - b) >> 31))) ^ flip;
  }
}

function scale(
  acc: Uint8Array,
  accAt: number,
  source: Uint8Array,
  sourceAt: number,
  count: number,
  scalar: number,
): void {
  for (let i = 0; i < count; i++) {
    acc[accAt + i] = Math.imul(source[sourceAt + i] as number, scalar);
  }
}

function addScaled(
  acc: Uint8Array,
  accAt: number,
  source: Uint8Array,
  sourceAt: number,
  count: number,
  scalar: number,
): void {
  for (let i = 0; i < count; i++) {
    const product = Math.imul(source[sourceAt + i] as number, scalar);
    acc[accAt + i] = (acc[accAt + i] as number) + product;
  }
}

/** Truncating division; `shift` 24 reads a byte as signed, 0 as unsigned. */
function divide(acc: Uint8Array, accAt: number, count: number, ranks: number, shift: 0 | 24): void {
  for (let i = 0; i < count; i++) {
    const value = ((acc[accAt + i] as number) << shift) >> shift;
    acc[accAt + i] = Math.trunc(value / ranks);
  }
}
