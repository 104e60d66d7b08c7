/** Memory of a simulated device that lives in an arena, where kernels reach it. */

import { fillElements, fingerprintOf } from "../../../../algorithms/host-memory.ts";
import type { DType } from "../../../../api/index.ts";
import { invariant } from "../../../../api/invariant.ts";
import type { SimMemory } from "../../executor.ts";
import type { Arena } from "./arena.ts";

/** A range of an arena. */
export class WasmMemory implements SimMemory {
  readonly device: string;
  readonly ptr: bigint;
  readonly byteLength: number;
  readonly borrowed = false;
  /** Place of the first byte in the arena. */
  readonly address: number;
  #arena: Arena | undefined;

  constructor(device: string, ptr: bigint, byteLength: number, arena: Arena, address: number) {
    this.device = device;
    this.ptr = ptr;
    this.byteLength = byteLength;
    this.#arena = arena;
    this.address = address;
    arena.watch(this, address, byteLength);
  }

  /** The arena, until the memory is freed: from then on it does not reference one. */
  get arena(): Arena | undefined {
    return this.#arena;
  }

  write(byteOffset: number, bytes: Uint8Array): void {
    this.#held().bytes.set(bytes, this.address + byteOffset);
  }

  read(byteOffset: number, into: Uint8Array): void {
    into.set(this.view(byteOffset, into.length));
  }

  fill(byteOffset: number, count: number, dtype: DType, value: number | bigint): void {
    fillElements(this.#held().memory.buffer, this.address + byteOffset, count, dtype, value);
  }

  fingerprint(byteOffset: number, byteLength: number): number {
    return fingerprintOf(this.view(byteOffset, byteLength));
  }

  free(): void {
    this.#arena?.unwatch(this);
    this.#arena?.give(this.address, this.byteLength);
    this.#arena = undefined;
  }

  /** Some of its bytes, until the arena grows. */
  view(byteOffset: number, byteLength: number): Uint8Array {
    const begin = this.address + byteOffset;
    return this.#held().bytes.subarray(begin, begin + byteLength);
  }

  #held(): Arena {
    invariant(this.#arena !== undefined, "memory that was freed is neither read nor written");
    return this.#arena;
  }
}
