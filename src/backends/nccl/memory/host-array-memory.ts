/** The caller's own host memory, as the library sees it before it is copied to a device. */
import {
  bytesOf,
  type CommErrorFacts,
  type DType,
  InvalidArgumentError,
  type Memory,
} from "../../../api/index.ts";
import { scalarBytes } from "./mapping.ts";

/** An ArrayBuffer that calls were given arrays of. */
export class HostArrayMemory implements Memory {
  readonly device = "host";
  /** Of no use to a device. */
  readonly ptr = 0n;
  readonly byteLength: number;
  readonly borrowed = true;
  readonly #buffer: ArrayBufferLike;

  constructor(buffer: ArrayBufferLike) {
    this.#buffer = buffer;
    this.byteLength = buffer.byteLength;
  }

  get detached(): boolean {
    return this.#buffer.byteLength !== this.byteLength;
  }

  /**
   * The bytes of a range, without a copy; `facts` are those of the error.
   *
   * @throws InvalidArgumentError when the memory was transferred away meanwhile.
   */
  bytes(byteOffset: number, length: number, facts?: CommErrorFacts): Uint8Array {
    try {
      return new Uint8Array(this.#buffer, byteOffset, length);
    } catch (cause) {
      throw new InvalidArgumentError(
        {
          headline: "a TypedArray's ArrayBuffer was transferred away while a call had it",
          hint: "an array is lent from the call until it settles",
        },
        { ...facts, cause },
      );
    }
  }

  write(byteOffset: number, bytes: Uint8Array): void {
    this.bytes(byteOffset, bytes.length).set(bytes);
  }

  read(byteOffset: number, into: Uint8Array): void {
    into.set(this.bytes(byteOffset, into.length));
  }

  fill(byteOffset: number, count: number, dtype: DType, value: number | bigint): void {
    const element = scalarBytes(dtype, value);
    const target = this.bytes(byteOffset, count * bytesOf(dtype));
    for (let at = 0; at < target.length; at += element.length) target.set(element, at);
  }

  /** The caller keeps it. */
  free(): void {}
}
