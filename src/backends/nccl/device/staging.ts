/**
 * Page-locked host memory for copies to and from the device. The caller may change its array once `upload` returns, while the
 * copy waits in the stream. A copy of ordinary memory would block this thread until the stream is done, and delay other
 * processes that wait for it.
 */

import { runAll } from "../../../api/run-all.ts";
import type { DeferredFree } from "./deferred-free.ts";
import type { Device } from "./device.ts";
import type { Progress } from "./progress.ts";

interface Block {
  readonly ptr: bigint;
  readonly bytes: Uint8Array;
  used: number;
}

/** Smallest block size; larger uploads get a block of their size. */
const blockBytes = 1 << 20;

/** Blocks kept for later uploads. */
const keptBytes = 1 << 26;

/** Staging memory of one device. */
export class Staging {
  readonly #device: Device;
  readonly #progress: Progress;
  readonly #deferredFree: DeferredFree;
  #current: Block | undefined;
  #spare: Block[] = [];
  readonly #all = new Set<Block>();

  constructor(device: Device, progress: Progress, deferredFree: DeferredFree) {
    this.#device = device;
    this.#progress = progress;
    this.#deferredFree = deferredFree;
  }

  /** Copies bytes to the device, in stream order. */
  upload(target: bigint, bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    const { block, start } = this.#reserve(bytes.length);
    block.bytes.set(bytes, start);
    const { stream } = this.#device;
    this.#device.use().copy(target, block.ptr + BigInt(start), bytes.length, stream);
  }

  /**
   * Starts a copy from the device in stream order, and returns the memory that receives it. The wait for the device of this
   * turn must read it as soon as it settles, before the memory is reused.
   */
  startDownload(source: bigint, length: number): Uint8Array {
    const { block, start } = this.#reserve(length);
    const { stream } = this.#device;
    this.#device.use().copy(block.ptr + BigInt(start), source, length, stream);
    return block.bytes.subarray(start, start + length);
  }

  /** Copies bytes that `startDownload` gave in this turn, once they are there. */
  async finishDownload(arrived: Uint8Array, into: Uint8Array): Promise<void> {
    await this.#progress.after([this.#device]);
    into.set(arrived);
  }

  /** Frees all blocks. */
  release(): void {
    const blocks = [...this.#all];
    this.#all.clear();
    this.#spare = [];
    this.#current = undefined;
    runAll(
      blocks.map(
        ({ ptr }) =>
          () =>
            this.#device.use().hostFree(ptr),
      ),
    );
  }

  #reserve(length: number): { readonly block: Block; readonly start: number } {
    const block = this.#blockFor(length);
    const start = block.used;
    block.used += Math.ceil(length / 64) * 64;
    return { block, start };
  }

  #blockFor(length: number): Block {
    const current = this.#current;
    if (current !== undefined) {
      if (current.used + length <= current.bytes.length) return current;
      this.#retire(current);
    }
    const fits = this.#spare.findIndex(({ bytes }) => bytes.length >= length);
    const block = fits < 0 ? this.#allocate(length) : (this.#spare.splice(fits, 1)[0] as Block);
    this.#current = block;
    return block;
  }

  #allocate(length: number): Block {
    const size = Math.max(blockBytes, length);
    const cuda = this.#device.use();
    const ptr = cuda.hostAlloc(size);
    try {
      const block = { ptr, bytes: cuda.hostView(ptr, size), used: 0 };
      this.#all.add(block);
      return block;
    } catch (error) {
      cuda.hostFree(ptr);
      throw error;
    }
  }

  #free(block: Block): void {
    if (this.#all.delete(block)) this.#device.use().hostFree(block.ptr);
  }

  /** Reuses a full block after its copies are done. */
  #retire(block: Block): void {
    this.#current = undefined;
    const recycle = (): void => {
      if (!this.#all.has(block)) return;
      block.used = 0;
      const kept = this.#spare.reduce((sum, { bytes }) => sum + bytes.length, 0);
      if (kept + block.bytes.length <= keptBytes) this.#spare.push(block);
      else this.#deferredFree.add(0, () => this.#free(block));
    };
    // If the stream fails, the block stays unused until the device is released.
    void this.#progress
      .after([this.#device])
      .then(recycle)
      .catch(() => undefined);
  }
}
