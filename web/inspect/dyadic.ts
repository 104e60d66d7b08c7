/** Exact numbers of the form m · 2^e, to tell what a hop rounded away. */

/** m · 2^e. */
export interface Dyadic {
  readonly m: bigint;
  readonly e: number;
}

/** A finite number, exactly. */
export function dyadic(x: number): Dyadic {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, x);
  const bits = view.getBigUint64(0);
  const field = Number((bits >> 52n) & 0x7ffn);
  const fraction = bits & 0xfffffffffffffn;
  const m = field === 0 ? fraction : fraction | 0x10000000000000n;
  return { m: bits >> 63n === 0n ? m : -m, e: (field === 0 ? 1 : field) - 1075 };
}

export function plus(a: Dyadic, b: Dyadic): Dyadic {
  const e = Math.min(a.e, b.e);
  return { m: (a.m << BigInt(a.e - e)) + (b.m << BigInt(b.e - e)), e };
}

export function times(a: Dyadic, b: Dyadic): Dyadic {
  return { m: a.m * b.m, e: a.e + b.e };
}

export function minus(a: Dyadic, b: Dyadic): Dyadic {
  return plus(a, { m: -b.m, e: b.e });
}

/** `a` in units of 2^e, as a number good to about nine digits; beyond the range of numbers infinite. */
export function inUnits(a: Dyadic, e: number): number {
  const size = a.m < 0n ? -a.m : a.m;
  const surplus = Math.max(0, size.toString(2).length - 60);
  const value = Number(size >> BigInt(surplus)) * 2 ** (a.e - e + surplus);
  return a.m < 0n ? -value : value;
}
