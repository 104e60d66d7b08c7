/** The devices of a simulated world: each allocates for its rank, at addresses that no other allocation of the world has. */

import { AddressSpace, allocateHost, allocationError } from "../../algorithms/host-memory.ts";
import type { Memory, RankDevice } from "../../api/backend-entry.ts";
import type { Executor } from "./executor.ts";
import { PhantomMemory } from "./memory.ts";

/** The device of one simulated rank. */
export class SimDevice implements RankDevice {
  readonly name: string;
  readonly #rank: number;
  readonly #addresses: AddressSpace;
  readonly #executor: Executor;
  readonly #phantom: boolean;

  constructor(rank: number, addresses: AddressSpace, executor: Executor, phantom: boolean) {
    this.name = `sim:${rank}`;
    this.#rank = rank;
    this.#addresses = addresses;
    this.#executor = executor;
    this.#phantom = phantom;
  }

  streamOf(): undefined {
    return undefined;
  }

  allocate(byteLength: number): Memory {
    const { name } = this;
    const ptr = this.#addresses.reserve(byteLength);
    if (this.#phantom) return new PhantomMemory(name, ptr, byteLength);
    try {
      const allocated = this.#executor.allocate?.(name, ptr, byteLength);
      return allocated ?? allocateHost(name, ptr, byteLength);
    } catch (cause) {
      if (!(cause instanceof RangeError)) throw cause;
      throw allocationError(this.#rank, name, byteLength, cause);
    }
  }

  /** Memory of the executor; `undefined` where the executor has none. */
  adopt(ptr: bigint, byteLength: number): Memory | undefined {
    return this.#executor.adopt?.(this.name, ptr, byteLength);
  }

  borrow(buffer: ArrayBufferLike): Memory {
    return this.#addresses.borrow(this.name, buffer);
  }
}

/** The devices of all ranks of a world, by rank. */
export function simDevices(size: number, executor: Executor, phantom: boolean): SimDevice[] {
  const addresses = new AddressSpace();
  return Array.from(
    { length: size },
    (_, rank) => new SimDevice(rank, addresses, executor, phantom),
  );
}
