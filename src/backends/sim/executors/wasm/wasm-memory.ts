/** Memory of a simulated device that lives in an arena, where kernels reach it. */
import type { DType } from "../../../../api/index.ts";
import type { SimMemory } from "../../executor.ts";
import { fillElements, fingerprintOf } from "../../memory.ts";
import type { Arena } from "./arena.ts";

/** A range of an arena. */
export class WasmMemory implements SimMemory {
  readonly device: string;
  readonly ptr: bigint;
  readonly byteLength: number;
  readonly borrowed = false;
  readonly arena: Arena;
  /** Place of the first byte in the arena. */
  readonly address: number;
  #freed = false;

  constructor(device: string, ptr: bigint, byteLength: number, arena: Arena, address: number) {
    this.device = device;
    this.ptr = ptr;
    this.byteLength = byteLength;
    this.arena = arena;
    this.address = address;
    arena.watch(this, address, byteLength);
  }

  write(byteOffset: number, bytes: Uint8Array): void {
    this.arena.bytes.set(bytes, this.address + byteOffset);
  }

  read(byteOffset: number, into: Uint8Array): void {
    into.set(this.view(byteOffset, into.length));
  }

  fill(byteOffset: number, count: number, dtype: DType, value: number | bigint): void {
    fillElements(this.arena.memory.buffer, this.address + byteOffset, count, dtype, value);
  }

  fingerprint(byteOffset: number, byteLength: number): number {
    return fingerprintOf(this.view(byteOffset, byteLength));
  }

  free(): void {
    if (this.#freed) return;
    this.#freed = true;
    this.arena.unwatch(this);
    this.arena.give(this.address, this.byteLength);
  }

  /** Some of its bytes, until the arena grows. */
  view(byteOffset: number, byteLength: number): Uint8Array {
    const begin = this.address + byteOffset;
    return this.arena.bytes.subarray(begin, begin + byteLength);
  }
}
