/** The tables of kernels' work, one for each dispatch; `wgsl/kernel.ts` defines their rows. */
import type { DeviceLimits } from "./device.ts";
import type { Spot } from "./jobs.ts";
import { type Piece, spotsOf, type Window, windowIndex, windowsOf } from "./pieces.ts";
import type { Slab } from "./slabs.ts";
import { lineBytes, operandWord, rowsPerJob, workgroupSize } from "./wgsl/kernel.ts";

/** One dispatch: the windows of its pieces, the table of their work, and how many workgroups they need. */
export interface Dispatch {
  readonly windows: readonly Window[];
  readonly table: Uint32Array<ArrayBuffer>;
  readonly grid: readonly [number, number];
}

/** The parts of one dispatch. */
export class Batch {
  readonly pieces: Piece[] = [];
  readonly windows: Window[] = [];
  /** The number of each window, by slab and index. */
  readonly #numbers = new Map<Slab, Map<number, number>>();

  /** The number of a window; `undefined` for one of another batch. */
  number({ slab, index }: Window): number | undefined {
    return this.#numbers.get(slab)?.get(index);
  }

  add(piece: Piece, windows: readonly Window[]): void {
    this.pieces.push(piece);
    for (const window of windows) {
      if (this.number(window) !== undefined) continue;
      const known = this.#numbers.get(window.slab) ?? new Map<number, number>();
      this.#numbers.set(window.slab, known.set(window.index, this.windows.length));
      this.windows.push(window);
    }
  }
}

const rowWords = 4;

/** Parts the pieces of one level and kernel so that no part needs more windows than there are. */
export function batchesOf(pieces: readonly Piece[], limits: DeviceLimits): Batch[] {
  let batch = new Batch();
  const batches = [batch];
  for (const piece of pieces) {
    const windows = windowsOf(piece, limits);
    const added = windows.filter((window) => batch.number(window) === undefined);
    if (batch.windows.length + added.length > limits.windows) {
      batch = new Batch();
      batches.push(batch);
    }
    batch.add(piece, windows);
  }
  return batches;
}

/** The dispatch of a batch; an invocation of its kernel folds `bytesPerInvocation`. */
export function dispatchOf(
  batch: Batch,
  bytesPerInvocation: number,
  divisor: number,
  limits: DeviceLimits,
): Dispatch {
  const { pieces, windows } = batch;
  const rows = pieces.reduce((sum, piece) => sum + rowsPerJob + spotsOf(piece).length, 1);
  const table = new Uint32Array(rows * rowWords);
  const find = (spot: Spot): number =>
    batch.number({ slab: spot.slab, index: windowIndex(spot, limits) }) as number;
  let tiles = 0;
  let row = 1 + rowsPerJob * pieces.length;
  pieces.forEach((piece, number) => {
    const { operands, targets, bytes, place, final } = piece;
    const at = (1 + rowsPerJob * number) * rowWords;
    table.set([tiles, bytes, row, operands.length], at);
    for (const { spot, kind, scalar } of operands) {
      const word = operandWord(find(spot), kind);
      table.set([word, spot.offset % limits.windowBytes, ...scalar], row++ * rowWords);
    }
    table.set([row, targets.length, place % lineBytes, Number(final)], at + rowWords);
    for (const spot of targets) {
      table.set([find(spot), spot.offset % limits.windowBytes], row++ * rowWords);
    }
    tiles += Math.ceil(bytes / (bytesPerInvocation * workgroupSize));
  });
  const width = Math.min(tiles, limits.gridWidth);
  table.set([tiles, pieces.length, width, divisor]);
  return { windows, table, grid: [width, Math.ceil(tiles / width)] };
}
