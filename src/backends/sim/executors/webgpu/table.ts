/** The tables of kernels' work, one for each dispatch; `wgsl/kernel.ts` defines their rows. */
import type { DeviceLimits } from "./device.ts";
import { type Piece, spotsOf, type Window, windowIndex } from "./pieces.ts";
import type { Slab } from "./slabs.ts";
import { lineBytes, operandWord, rowsPerJob, workgroupSize } from "./wgsl/kernel.ts";

/** One dispatch: the windows of its pieces, the table of their work, and how many workgroups they need. */
export interface Dispatch {
  readonly windows: readonly Window[];
  readonly table: Uint32Array<ArrayBuffer>;
  readonly grid: readonly [number, number];
}

/** The parts of one dispatch. */
export interface Batch {
  readonly pieces: Piece[];
  readonly windows: Window[];
  /** The number of each window, by slab and index. */
  readonly numbers: Map<Slab, Map<number, number>>;
}

const rowWords = 4;

/** Parts the pieces of one level and kernel so that no part needs more windows than there are. */
export function batchesOf(pieces: readonly Piece[], limits: DeviceLimits): Batch[] {
  const batches: Batch[] = [];
  let batch: Batch = { pieces: [], windows: [], numbers: new Map() };
  for (const piece of pieces) {
    const added = newWindows(piece, batch, limits);
    if (batch.windows.length + added.length > limits.windows) {
      batches.push(batch);
      batch = { pieces: [], windows: [], numbers: new Map() };
    }
    const { windows, numbers } = batch;
    for (const window of newWindows(piece, batch, limits)) {
      const known = numbers.get(window.slab) ?? new Map<number, number>();
      numbers.set(window.slab, known.set(window.index, windows.length));
      windows.push(window);
    }
    batch.pieces.push(piece);
  }
  return [...batches, batch];
}

function newWindows(piece: Piece, { numbers }: Batch, limits: DeviceLimits): Window[] {
  const added: Window[] = [];
  for (const spot of spotsOf(piece)) {
    const { slab } = spot;
    const index = windowIndex(spot, limits);
    const known = numbers.get(slab)?.has(index) === true;
    if (known || added.some((each) => each.slab === slab && each.index === index)) continue;
    added.push({ slab, index });
  }
  return added;
}

/** The dispatch of a batch; an invocation of its kernel folds `bytesPerInvocation`. */
export function dispatchOf(
  { pieces, windows, numbers }: Batch,
  bytesPerInvocation: number,
  divisor: number,
  limits: DeviceLimits,
): Dispatch {
  const rows = pieces.reduce((sum, piece) => sum + rowsPerJob + spotsOf(piece).length, 1);
  const table = new Uint32Array(rows * rowWords);
  const find = (spot: Piece["targets"][number]): number =>
    numbers.get(spot.slab)?.get(windowIndex(spot, limits)) as number;
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
