/** A travelling chunk: a wheel with a wedge for every rank, filled where that rank's contribution is in. */
import { rankColour } from "../theme.ts";
import type { Point, Way } from "./geometry.ts";

/** The look of a parcel. */
export interface ParcelLook {
  /** Contributions, in the order of folding. */
  readonly order: readonly number[];
  readonly final: boolean;
  readonly ranks: number;
  readonly ink: string;
  readonly paper: string;
  readonly well: string;
}

/** Draws a parcel round a point: a disc of one colour, or a wheel; complete values have a rim. */
export function drawParcel(
  context: CanvasRenderingContext2D,
  { x, y }: Point,
  size: number,
  { order, final, ranks, ink, paper, well }: ParcelLook,
): void {
  context.beginPath();
  context.arc(x, y, size + 2, 0, 2 * Math.PI);
  context.fillStyle = paper;
  context.fill();
  context.beginPath();
  context.arc(x, y, size, 0, 2 * Math.PI);
  context.fillStyle = well;
  context.fill();
  if (order.length === 1 && (final || ranks === 1)) {
    context.beginPath();
    context.arc(x, y, size, 0, 2 * Math.PI);
    context.fillStyle = rankColour(order[0] ?? 0, ranks);
    context.fill();
    return;
  }
  const wedge = (2 * Math.PI) / ranks;
  for (const rank of order) {
    const begin = -Math.PI / 2 + rank * wedge;
    context.beginPath();
    context.moveTo(x, y);
    context.arc(x, y, size, begin, begin + wedge);
    context.closePath();
    context.fillStyle = rankColour(rank, ranks);
    context.fill();
  }
  context.beginPath();
  context.arc(x, y, size, 0, 2 * Math.PI);
  context.lineWidth = final ? 2 : 1;
  context.strokeStyle = ink;
  context.globalAlpha = final ? 0.9 : 0.35;
  context.stroke();
  context.globalAlpha = 1;
}

/** A fading line where a parcel has just been, in the colour of its sender. */
export function drawTail(
  context: CanvasRenderingContext2D,
  way: Way,
  u: number,
  colour: string,
  size: number,
): void {
  const pieces = 12;
  const span = 0.32;
  context.lineCap = "butt";
  context.strokeStyle = colour;
  for (let i = 0; i < pieces; i++) {
    const [from, to] = [u - (span * (pieces - i)) / pieces, u - (span * (pieces - i - 1)) / pieces];
    if (to <= 0) continue;
    const [a, b] = [way.at(Math.max(0, from)), way.at(to)];
    context.beginPath();
    context.moveTo(a.x, a.y);
    context.lineTo(b.x, b.y);
    context.lineWidth = size * (0.3 + (0.8 * i) / pieces);
    context.globalAlpha = 0.02 + (0.42 * i) / pieces;
    context.stroke();
  }
  context.globalAlpha = 1;
}
