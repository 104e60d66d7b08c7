/** The tables of kernels' work, one for each dispatch; `wgsl/kernel.ts` defines their rows. */
import type { DeviceLimits } from "./device.ts";
import type { Spot } from "./jobs.ts";
import { type Piece, spotsOf, windowsOf } from "./pieces.ts";
import { type Stretch, windowOf } from "./slabs.ts";
import { lineBytes, operandWord, rowsPerJob, workgroupSize } from "./wgsl/kernel.ts";

/** One dispatch: the windows of its pieces, the table of their work, and how many workgroups they need. */
export interface Dispatch {
  readonly windows: readonly Stretch[];
  readonly table: Uint32Array<ArrayBuffer>;
  readonly grid: readonly [number, number];
}

/** The parts of one dispatch. */
export interface Batch {
  readonly pieces: Piece[];
  windows: ReadonlySet<Stretch>;
}

const rowWords = 4;

/** Parts the pieces of one level and kernel so that no part needs more windows than there are. */
export function batchesOf(pieces: readonly Piece[], limits: DeviceLimits): Batch[] {
  const batches: Batch[] = [];
  for (const piece of pieces) {
    const windows = windowsOf(piece, limits);
    const last = batches.at(-1);
    const together = new Set([...(last?.windows ?? []), ...windows]);
    if (last === undefined || together.size > limits.windows) {
      batches.push({ pieces: [piece], windows });
    } else {
      last.pieces.push(piece);
      last.windows = together;
    }
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
  const { pieces } = batch;
  const windows = [...batch.windows];
  const numbers = new Map(windows.map((window, number) => [window, number]));
  const rows = pieces.reduce((sum, piece) => sum + rowsPerJob + spotsOf(piece).length, 1);
  const table = new Uint32Array(rows * rowWords);
  const find = ({ slab, offset }: Spot): number =>
    numbers.get(windowOf(slab, offset, limits)) as number;
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
