/** Where ranks stand on the stage, and the ways between them. */

import type { Flight } from "../data/film.ts";
import { type Figure, figureOf, type Graph, graphsOf, joined, linkKey } from "./graph.ts";

export interface Point {
  readonly x: number;
  readonly y: number;
}

/** A way from one rank to another. Both take 0 to 1. */
export interface Way {
  /** From middle to middle. */
  readonly line: (u: number) => Point;
  /** The part of it that no rank covers. */
  readonly at: (u: number) => Point;
}

/** A rank's place in a panel. */
export interface Spot extends Point {
  readonly rank: number;
}

/** A drawing of one graph: most films have one, a double tree has two. */
export interface Panel {
  readonly kind: Figure["kind"];
  readonly channels: ReadonlySet<number>;
  readonly spots: readonly Spot[];
  readonly ways: ReadonlyMap<string, Way>;
  readonly radius: number;
  readonly middle: Point;
}

export const stageWidth = 640;
export const stageHeight = 540;

/** Panels for a film, side by side. */
export function panelsOf(
  flights: readonly Flight[],
  size: number,
  rootOf: (channels: ReadonlySet<number>) => number,
): Panel[] {
  const graphs = graphsOf(flights, size);
  const trees = graphs.filter((graph) => figureOf(graph, rootOf(graph.channels)).kind === "tree");
  const apart = graphs.length === 2 && trees.length === 2;
  const drawn = apart ? graphs : [joined(graphs)];
  const room = stageWidth / drawn.length;
  return drawn.map((graph, i) => {
    const figure = figureOf(graph, rootOf(graph.channels));
    return panelOf(graph, figure, { left: i * room, width: room });
  });
}

interface Room {
  readonly left: number;
  readonly width: number;
}

function panelOf(graph: Graph, figure: Figure, room: Room): Panel {
  const { channels, links } = graph;
  const layout = figure.kind === "tree" ? tree(figure.layers, room) : circle(figure, room);
  const { spots, radius, way } = layout;
  const bySpot = new Map(spots.map((spot) => [spot.rank, spot]));
  const ways = new Map<string, Way>();
  for (const [key, { from, to }] of links) {
    const [a, b] = [bySpot.get(from), bySpot.get(to)];
    if (a === undefined || b === undefined) continue;
    ways.set(key, way(a, b, links.has(linkKey(to, from))));
  }
  const middle = { x: room.left + room.width / 2, y: stageHeight / 2 };
  return { kind: figure.kind, channels, spots, ways, radius, middle };
}

interface Laid {
  readonly spots: readonly Spot[];
  readonly radius: number;
  way(a: Spot, b: Spot, both: boolean): Way;
}

/** Ranks on a circle; a chain leaves a gap at the bottom. */
function circle({ kind, order }: Exclude<Figure, { kind: "tree" }>, room: Room): Laid {
  const size = order.length;
  const centre = { x: room.left + room.width / 2, y: stageHeight / 2 };
  const around = Math.min(room.width, stageHeight) / 2 - 62;
  const radius = Math.max(11, Math.min(27, (Math.PI * around) / Math.max(1, size) / 2.4));
  const gap = kind === "chain" ? Math.PI / 3 : 0;
  const angles = order.map((_, i) =>
    kind === "chain"
      ? Math.PI / 2 + gap / 2 + (i * (2 * Math.PI - gap)) / Math.max(1, size - 1)
      : -Math.PI / 2 + (i * 2 * Math.PI) / size,
  );
  const place = new Map(order.map((rank, i) => [rank, i]));
  const onCircle = (angle: number, r: number): Point => ({
    x: centre.x + r * Math.cos(angle),
    y: centre.y + r * Math.sin(angle),
  });
  const spots = order.map((rank, i) => ({
    rank,
    ...(size === 1 ? centre : onCircle(angles[i] as number, around)),
  }));
  const way = (a: Spot, b: Spot, both: boolean): Way => {
    const [i, j] = [place.get(a.rank) as number, place.get(b.rank) as number];
    const turn = (((j - i) % size) + size) % size;
    const beside = (turn === 1 || turn === size - 1) && (kind !== "chain" || Math.abs(i - j) === 1);
    if (!beside || size < 3) return chord(a, b, centre, radius, both);
    const start = angles[i] as number;
    let sweep = (angles[j] as number) - start;
    if (sweep > Math.PI) sweep -= 2 * Math.PI;
    if (sweep < -Math.PI) sweep += 2 * Math.PI;
    const off = (radius + 13) / around;
    // Against each other, messages keep to their own side.
    const lane = around + (both ? (sweep > 0 ? 8 : -8) : 0);
    const inner = sweep - 2 * Math.sign(sweep) * off;
    return {
      line: (u) => onCircle(start + u * sweep, lane),
      at: (u) => onCircle(start + Math.sign(sweep) * off + u * inner, lane),
    };
  };
  return { spots, radius, way };
}

/** A curve between two ranks that bends towards the middle, to its own side where both ways are used. */
function chord(a: Point, b: Point, centre: Point, radius: number, both: boolean): Way {
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const length = Math.hypot(dx, dy) || 1;
  const middle = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  const side = both ? 0.09 * length : 0;
  const control = {
    x: middle.x + 0.3 * (centre.x - middle.x) - (dy / length) * side,
    y: middle.y + 0.3 * (centre.y - middle.y) + (dx / length) * side,
  };
  return curve(a, control, control, b, (radius + 13) / length);
}

/** Layers from top to bottom. */
function tree(layers: readonly (readonly { rank: number; across: number }[])[], room: Room): Laid {
  const widest = Math.max(...layers.map(({ length }) => length));
  const [top, bottom] = [56, stageHeight - 56];
  const gap = layers.length < 2 ? 0 : (bottom - top) / (layers.length - 1);
  const usable = room.width - 28;
  const radius = Math.max(10, Math.min(27, usable / widest / 2.7, gap === 0 ? 27 : gap / 3));
  const spots = layers.flatMap((layer, depth) =>
    layer.map(({ rank, across }) => ({
      rank,
      x: room.left + 14 + across * usable,
      y: gap === 0 ? stageHeight / 2 : top + depth * gap,
    })),
  );
  const way = (a: Spot, b: Spot, both: boolean): Way => {
    const down = b.y > a.y;
    const shift = both ? (down ? 6 : -6) : 0;
    const [from, to] = [a, b].map(({ x, y }) => ({ x: x + shift, y }));
    const bend = (b.y - a.y) / 2;
    const c1 = { x: a.x + shift, y: a.y + bend };
    const c2 = { x: b.x + shift, y: b.y - bend };
    const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    return curve(from as Point, c1, c2, to as Point, (radius + 13) / length);
  };
  return { spots, radius, way };
}

/** A cubic curve without its first and last part, which the ranks cover. */
function curve(a: Point, c1: Point, c2: Point, b: Point, off: number): Way {
  const cut = Math.min(0.4, off);
  const line = (u: number): Point => {
    const v = 1 - u;
    const mix = (p: number, q: number, r: number, s: number): number =>
      v * v * v * p + 3 * v * v * u * q + 3 * v * u * u * r + u * u * u * s;
    return { x: mix(a.x, c1.x, c2.x, b.x), y: mix(a.y, c1.y, c2.y, b.y) };
  };
  return { line, at: (u) => line(cut + u * (1 - 2 * cut)) };
}
