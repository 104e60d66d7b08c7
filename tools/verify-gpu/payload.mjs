// Numbers for the property run: slices of long pools, so that drawing a call costs a copy and no generator.
import { arrays } from "./arrays.mjs";

const poolBytes = 2 ** 25;

/** Sign and fraction, least exponent, its spread and shift, of numbers with sums that round at every hop. */
const wide = {
  float16: [0x83ff, 6, 16, 10],
  bfloat16: [0x807f, 112, 32, 7],
  float32: [0x807fffff, 112, 32, 23],
  float64: [0x800fffff, 1008, 32, 20],
  float8e4m3: [0x87, 3, 8, 3],
  float8e5m2: [0x83, 8, 16, 2],
};

export class Payload {
  #pools = new Map();
  #draw;

  constructor(draw) {
    this.#draw = draw;
  }

  /** So many elements: any bits at all, or floats of wide exponents. */
  slice(dtype, style, length) {
    const Type = arrays[dtype];
    const key = style === "bits" ? "bits" : dtype;
    let pool = this.#pools.get(key);
    if (pool === undefined) {
      pool = this.#make(style === "bits" ? undefined : dtype);
      this.#pools.set(key, pool);
    }
    const most = poolBytes / Type.BYTES_PER_ELEMENT - length;
    return new Type(pool, this.#draw.below(most) * Type.BYTES_PER_ELEMENT, length);
  }

  #make(dtype) {
    const pool = new ArrayBuffer(poolBytes);
    const words = new Uint32Array(pool);
    for (let i = 0; i < words.length; i++) words[i] = this.#draw.word();
    const rule = wide[dtype];
    if (rule === undefined) return pool;
    const [kept, least, spread, shift] = rule;
    const values =
      dtype === "float64" ? words : dtype === "float32" ? words : new arrays[dtype](pool);
    const step = dtype === "float64" ? 2 : 1;
    for (let i = step - 1; i < values.length; i += step) {
      const value = values[i];
      values[i] = ((value & kept) | ((least + ((value >>> shift) % spread)) << shift)) >>> 0;
    }
    return pool;
  }
}
