/** The devices of a simulated world: each allocates for its rank, at addresses that no other allocation of the world has. */

import { type AddressSpace, HostDevice } from "../../algorithms/host-memory.ts";
import type { Memory } from "../../api/backend-entry.ts";
import { UnsupportedError } from "../../api/index.ts";
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
    if (this.#phantom) return new PhantomMemory(name, ptr, byteLength);
    return this.#executor.allocate?.(name, ptr, byteLength) ?? super.create(ptr, byteLength);
  }

  /** Memory of the executor; `undefined` where the executor has none. */
  override adopt(ptr: bigint, byteLength: number): Memory | undefined {
    return this.#executor.adopt?.(this.name, ptr, byteLength);
  }
}

/** Memory of a simulated device without contents. */
class PhantomMemory implements SimMemory {
  readonly phantom = true;
  readonly borrowed = false;
  readonly device: string;
  readonly ptr: bigint;
  readonly byteLength: number;

  constructor(device: string, ptr: bigint, byteLength: number) {
    this.device = device;
    this.ptr = ptr;
    this.byteLength = byteLength;
  }

  write(): void {
    throw noContents("write", this.device);
  }

  read(): void {
    throw noContents("read", this.device);
  }

  /** Does nothing: contents could never be read. */
  fill(): void {}

  fingerprint(): number {
    throw noContents("fingerprint", this.device);
  }

  free(): void {}
}

function noContents(action: string, device: string): UnsupportedError {
  return new UnsupportedError(
    { headline: `${action}: memory of ${device} has a size and no contents` },
    { field: "phantom" },
  );
}
