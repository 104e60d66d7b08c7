/** Where ranks stand on the stage, and the ways between them. */

import type { Flight } from "../data/film.ts";
import {
  type Figure,
  figureOf,
  type Graph,
  graphsOf,
  joined,
  linkKey,
  type TreeFigure,
} from "./graph.ts";

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
  /** Place of its number from its middle, where messages would cover it. */
  readonly label?: Point | undefined;
}

/** A drawing of one graph: most films have one, a double tree has two. */
export interface Panel {
  readonly kind: Figure["kind"];
  /** Name of a tree among two, with its channels; `undefined` for the only panel. */
  readonly title: string | undefined;
  /** Its upper left corner. */
  readonly corner: Point;
  readonly channels: ReadonlySet<number>;
  readonly spots: readonly Spot[];
  readonly ways: ReadonlyMap<string, Way>;
  readonly radius: number;
  readonly middle: Point;
}

/** The size of a drawing in its own units. */
export interface Frame {
  readonly width: number;
  readonly height: number;
}

/** The panels of a film in their frame. */
export interface Drawing {
  readonly frame: Frame;
  readonly panels: readonly Panel[];
}

const wide: Frame = { width: 640, height: 540 };
const narrow: Frame = { width: 400, height: 400 };

/** True for a room of so many pixels whose drawing takes fewer units, so that ranks stay legible. */
export function isNarrow(pixels: number): boolean {
  return pixels < 480;
}

/** Most leaves for two trees side by side. */
const mostBeside = 8;

/** Distance of the layers of a tree. */
const layerGap = 58;
/** Room above and below a tree, with the name of the root. */
const treeEdge = 54;
/** Room for the name of a tree. */
const titleRoom = 24;

/** The drawing of a film in a room of so many pixels: two trees beside each other, or one above the other where they are wide. */
export function drawingOf(
  flights: readonly Flight[],
  size: number,
  rootOf: (channels: ReadonlySet<number>) => number,
  pixels: number,
): Drawing {
  const graphs = graphsOf(flights, size);
  const base = isNarrow(pixels) ? narrow : wide;
  const trees = graphs.flatMap((graph) => {
    const figure = figureOf(graph, rootOf(graph.channels));
    return figure.kind === "tree" ? [{ graph, figure }] : [];
  });
  if (graphs.length === 2 && trees.length === 2) return treesOf(trees, base);
  const graph = joined(graphs);
  const figure = figureOf(graph, rootOf(graph.channels));
  const height = figure.kind === "tree" && base === narrow ? treeHeight(figure, base) : base.height;
  const frame = { ...base, height };
  return { frame, panels: [panelOf(graph, figure, { left: 0, top: 0, ...frame }, undefined)] };
}

interface DrawnTree {
  readonly graph: Graph;
  readonly figure: TreeFigure;
}

function treesOf(trees: readonly DrawnTree[], base: Frame): Drawing {
  const isBeside = base === wide && trees.every(({ figure }) => figure.leaves <= mostBeside);
  const width = isBeside ? base.width / trees.length : base.width;
  const heights = trees.map(({ figure }) =>
    isBeside ? base.height : titleRoom + treeHeight(figure, base),
  );
  let top = 0;
  const panels = trees.map(({ graph, figure }, i) => {
    const room = { left: isBeside ? i * width : 0, top, width, height: heights[i] as number };
    if (!isBeside) top += room.height;
    const channels = [...graph.channels].join(", ");
    const title = `tree ${"AB"[i]} · ${graph.channels.size === 1 ? "channel" : "channels"} ${channels}`;
    return panelOf(graph, figure, room, title);
  });
  return { frame: { width: base.width, height: isBeside ? base.height : top }, panels };
}

/** The height that a tree needs in a frame. */
function treeHeight({ layers, leaves }: TreeFigure, { width }: Frame): number {
  return 2 * treeEdge + (layers.length - 1) * layerGap + (isCrowded(leaves, width) ? secondRow : 0);
}

interface Room {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

function panelOf(graph: Graph, figure: Figure, room: Room, title: string | undefined): Panel {
  const { channels, links } = graph;
  const top = room.top + (title === undefined ? 0 : titleRoom);
  const below = { ...room, top, height: room.height - (top - room.top) };
  const layout = figure.kind === "tree" ? tree(figure, below) : circle(figure, below);
  const { spots, radius, way } = layout;
  const bySpot = new Map(spots.map((spot) => [spot.rank, spot]));
  const ways = new Map<string, Way>();
  for (const [key, { from, to }] of links) {
    const [a, b] = [bySpot.get(from), bySpot.get(to)];
    if (a === undefined || b === undefined) continue;
    ways.set(key, way(a, b, links.has(linkKey(to, from))));
  }
  const middle = { x: room.left + room.width / 2, y: room.top + room.height / 2 };
  const corner = { x: room.left, y: room.top };
  return { kind: figure.kind, title, corner, channels, spots, ways, radius, middle };
}

interface Laid {
  readonly spots: readonly Spot[];
  readonly radius: number;
  way(a: Spot, b: Spot, both: boolean): Way;
}

/** Ranks on a circle; a chain leaves a gap at the bottom. */
function circle({ kind, order }: Exclude<Figure, TreeFigure>, room: Room): Laid {
  const size = order.length;
  const centre = { x: room.left + room.width / 2, y: room.top + room.height / 2 };
  const around = Math.min(room.width, room.height) / 2 - (room.width <= narrow.width ? 46 : 62);
  const free = (Math.PI * around) / Math.max(1, size) / 2.4;
  const isCrowded = free < 11;
  const radius = isCrowded ? 8 : Math.min(27, free);
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
    ...(isCrowded && { label: outwards(angles[i] as number, radius + 17) }),
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

function outwards(angle: number, distance: number): Point {
  return { x: distance * Math.cos(angle), y: distance * Math.sin(angle) };
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

/** Least width of a column; where columns are narrower, every other leaf is lower. */
const leastColumn = 34;
const secondRow = 30;
const margin = 14;

/** True where leaves need two rows. */
function isCrowded(leaves: number, width: number): boolean {
  return (width - 2 * margin) / leaves < leastColumn;
}

/** Layers from top to bottom. */
function tree({ layers, leaves }: TreeFigure, room: Room): Laid {
  const rows = isCrowded(leaves, room.width) ? secondRow : 0;
  const [top, bottom] = [room.top + treeEdge, room.top + room.height - treeEdge - rows];
  const gap = layers.length < 2 ? 0 : (bottom - top) / (layers.length - 1);
  const usable = room.width - 2 * margin;
  // Ranks of one row are at least a column and a half apart where there are two.
  const apart = (usable / leaves) * (rows > 0 ? 1.5 : 1);
  const radius = Math.max(10, Math.min(rows > 0 ? 13 : 27, apart / 2.7, gap === 0 ? 27 : gap / 3));
  const spots = layers.flatMap((layer, depth) =>
    layer.map(({ rank, across, column }) => ({
      rank,
      x: room.left + margin + across * usable,
      y:
        (gap === 0 ? room.top + room.height / 2 : top + depth * gap) +
        (column !== undefined && column % 2 === 1 ? rows : 0),
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
