/** Memory of fake GPUs and of their host in one address space, where no address is ever given out twice. */

/** Where an allocation lives: a device, or the host's page-locked memory. */
export type Home = number | "host";

/** One live allocation. */
export interface Block {
  readonly base: bigint;
  readonly bytes: Uint8Array;
  readonly home: Home;
  /** Made for symmetric windows. */
  readonly symmetric: boolean;
}

/** Gap between allocations, so that reaching past the end of one never lands in the next. */
const gapBytes = 4096n;

/** All allocations of one machine. */
export class AddressSpace {
  #next = 0x7000_0000_0000n;
  /** Ascending addresses. */
  readonly #blocks: Block[] = [];

  allocate(length: number, home: Home, symmetric = false): bigint {
    const base = this.#next;
    this.#next += ((BigInt(length) + 511n) / 512n) * 512n + gapBytes;
    // Fresh device memory has arbitrary contents: a program that expects zeros must write them.
    this.#blocks.push({ base, bytes: new Uint8Array(length).fill(0xa5), home, symmetric });
    return base;
  }

  /** The allocation that begins at an address, taken out. */
  free(base: bigint): Block {
    const block = this.#find(base);
    if (block === undefined || block.base !== base)
      throw new Error(`nothing was allocated at ${base}`);
    this.#blocks.splice(this.#blocks.indexOf(block), 1);
    return block;
  }

  /** The bytes of a range that lies in one live allocation. */
  range(ptr: bigint, length: number, home?: Home): Uint8Array {
    if (length === 0) return new Uint8Array(0);
    const block = this.#find(ptr);
    const start = block === undefined ? 0 : Number(ptr - block.base);
    if (block === undefined || start + length > block.bytes.length) {
      throw new Error(`illegal access: ${length} bytes at ${ptr} are in no live allocation`);
    }
    if (home !== undefined && block.home !== home) {
      throw new Error(`illegal access: ${ptr} is memory of ${block.home}, not of ${home}`);
    }
    return block.bytes.subarray(start, start + length);
  }

  /** The allocation that holds an address. */
  at(ptr: bigint): Block | undefined {
    return this.#find(ptr);
  }

  get live(): readonly Block[] {
    return this.#blocks;
  }

  #find(ptr: bigint): Block | undefined {
    let [low, high] = [0, this.#blocks.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#blocks[middle] as Block).base <= ptr) low = middle + 1;
      else high = middle;
    }
    const block = this.#blocks[low - 1];
    if (block === undefined) return undefined;
    return ptr < block.base + BigInt(Math.max(1, block.bytes.length)) ? block : undefined;
  }
}
