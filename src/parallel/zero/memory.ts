/** The memory of sharded training, counted where it is allocated and freed. */

/** The uses of memory. */
export type MemoryUse = "values" | "gradients" | "optimizer" | "exchange";

/** Bytes of one use. */
export interface HeldBytes {
  readonly nowBytes: number;
  /** The most since the trainer was made. */
  readonly peakBytes: number;
}

/**
 * Bytes that a rank holds: parameter values, their gradients, the optimizer's state, and buffers of calls under way, padding
 * included. `total` peaks when the sum does.
 */
export type ShardedMemory = Readonly<Record<MemoryUse | "total", HeldBytes>>;

/** Counts bytes by use. */
export class MemoryMeter {
  readonly #held = new Map<MemoryUse | "total", { nowBytes: number; peakBytes: number }>();

  /** Allocated so many bytes; freed them where negative. */
  add(use: MemoryUse, bytes: number): void {
    for (const each of [use, "total"] as const) {
      const held = this.#held.get(each) ?? { nowBytes: 0, peakBytes: 0 };
      held.nowBytes += bytes;
      held.peakBytes = Math.max(held.peakBytes, held.nowBytes);
      this.#held.set(each, held);
    }
  }

  report(): ShardedMemory {
    const of = (use: MemoryUse | "total"): HeldBytes => ({
      nowBytes: 0,
      peakBytes: 0,
      ...this.#held.get(use),
    });
    return {
      values: of("values"),
      gradients: of("gradients"),
      optimizer: of("optimizer"),
      exchange: of("exchange"),
      total: of("total"),
    };
  }
}
