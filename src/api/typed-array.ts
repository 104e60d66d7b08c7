/** Properties of TypedArrays of any class and realm. */

/** The bytes of a TypedArray. */
export interface ArrayBytes {
  readonly buffer: ArrayBufferLike;
  readonly byteOffset: number;
  readonly byteLength: number;
  /** Length in elements. */
  readonly length: number;
}

/** A property of TypedArrays as the language defines it: a subclass may define another one of its name. */
function intrinsic<T>(name: keyof ArrayBytes | typeof Symbol.toStringTag): (array: unknown) => T {
  const prototype: object = Object.getPrototypeOf(Uint8Array.prototype);
  const getter = Object.getOwnPropertyDescriptor(prototype, name)?.get as () => T;
  return (array) => getter.call(array);
}

const bufferOf = intrinsic<ArrayBufferLike>("buffer");
const byteOffsetOf = intrinsic<number>("byteOffset");
const byteLengthOf = intrinsic<number>("byteLength");
const lengthOf = intrinsic<number>("length");

/** The bytes of a TypedArray, whatever properties its class overrides. */
export function bytesOfArray(array: ArrayBufferView): ArrayBytes {
  return {
    buffer: bufferOf(array),
    byteOffset: byteOffsetOf(array),
    byteLength: byteLengthOf(array),
    length: lengthOf(array),
  };
}

/** The class name of a TypedArray of any realm, of a subclass that of its base; `undefined` for anything else. */
export const typedArrayClass: (value: unknown) => string | undefined = intrinsic(
  Symbol.toStringTag,
);
