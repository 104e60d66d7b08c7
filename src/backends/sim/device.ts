/** The devices of a simulated world: each allocates for its rank, at addresses that no other allocation of the world has. */

import { type AddressSpace, HostDevice } from "../../algorithms/host-memory.ts";
import type { Memory } from "../../api/backend-entry.ts";
import type { Executor, SimMemory } from "./executor.ts";

/** The device of one simulated rank: its memory is the executor's, or the host's where the executor has none. */
export class SimDevice extends HostDevice {
  readonly #executor: Executor;
  readonly #phantom: boolean;

  constructor(rank: number, addresses: AddressSpace, executor: Executor, phantom: boolean) {
    super("sim", rank, addresses);
    this.#executor = executor;
    this.#phantom = phantom;
  }

  protected override create(ptr: bigint, byteLength: number): Memory {
    const { name } = this;
    if (this.#phantom) return phantomMemory(name, ptr, byteLength);
    return this.#executor.allocate?.(name, ptr, byteLength) ?? super.create(ptr, byteLength);
  }

  /** Memory of the executor; `undefined` where the executor has none. */
  override adopt(ptr: bigint, byteLength: number): Memory | undefined {
    return this.#executor.adopt?.(this.name, ptr, byteLength);
  }
}

/** Memory without contents. Its buffers refuse to write and to read, and drop the value of a fill. */
function phantomMemory(device: string, ptr: bigint, byteLength: number): SimMemory {
  const unused = { write: nothing, read: nothing, fill: nothing, fingerprint: () => 0 };
  return { device, ptr, byteLength, phantom: true, borrowed: false, ...unused, free: nothing };
}

function nothing(): void {}
