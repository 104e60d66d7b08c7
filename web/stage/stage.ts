/** The stage: ranks stand still as SVG, messages travel between them on a canvas above. */
import type { Film, Flight } from "../data/film.ts";
import { html, sharpContext, svg } from "../dom.ts";
import { rankColour, rankStyle, token } from "../theme.ts";
import {
  type Drawing,
  drawingOf,
  isNarrow,
  type Panel,
  type Point,
  type Spot,
} from "./geometry.ts";
import { linkKey } from "./graph.ts";
import { drawParcel, drawTail } from "./parcel.ts";

/** Share of the film for which a rank glows after a message has arrived. */
const glowShare = 0.035;

/** Everything that a drawing is made of. */
interface Loaded {
  readonly film: Film;
  readonly root: number | undefined;
  readonly rootOf: (channels: ReadonlySet<number>) => number;
  /** Width of the room in pixels. */
  readonly pixels: number;
}

/** Draws a film at a time. */
export class Stage {
  readonly #room: HTMLElement;
  #loaded: Loaded | undefined;
  #drawing: Drawing = { frame: { width: 1, height: 1 }, panels: [] };
  #canvas: HTMLCanvasElement = html("canvas", { "aria-hidden": "true" });
  readonly #count = svg("text", { class: "under-way", y: 2 });
  readonly #countName = svg("text", { class: "under-way-name", y: 24 });
  /** By panel and rank. */
  #halos: SVGElement[][] = [];
  #gauges: SVGElement[][] = [];
  /** By rank: times at which messages arrive. */
  #arrivals: number[][] = [];
  #maxElements = 1;
  #timePs = 0;

  constructor(room: HTMLElement) {
    this.#room = room;
    new ResizeObserver(() => this.#fit()).observe(room);
  }

  /** Loads a film; gives the figure in words. */
  load(
    film: Film,
    root: number | undefined,
    rootOf: (channels: ReadonlySet<number>) => number,
  ): string {
    this.#maxElements = Math.max(1, ...film.flights.map(({ message }) => message.elements));
    this.#arrivals = Array.from({ length: film.ranks }, () => []);
    for (const { message } of film.flights) this.#arrivals[message.to]?.push(message.recvEnd);
    for (const times of this.#arrivals) times.sort((a, b) => a - b);
    return this.#lay({ film, root, rootOf, pixels: this.#room.clientWidth });
  }

  /** Lays the film out again where the room has become wide or narrow. */
  #fit(): void {
    const { clientWidth: pixels } = this.#room;
    const loaded = this.#loaded;
    if (loaded !== undefined && pixels > 0 && isNarrow(loaded.pixels) !== isNarrow(pixels)) {
      this.#lay({ ...loaded, pixels });
    }
    this.draw(this.#timePs);
  }

  #lay(loaded: Loaded): string {
    const { film, root, rootOf, pixels } = loaded;
    this.#loaded = loaded;
    this.#drawing = drawingOf(film.flights, film.ranks, rootOf, pixels);
    const { width, height } = this.#drawing.frame;
    this.#room.style.aspectRatio = `${width} / ${height}`;
    const text = describe(this.#drawing.panels, film);
    this.#build(film, root, text);
    return text;
  }

  /** Shows the film as it is at a time. */
  draw(timePs: number): void {
    this.#timePs = timePs;
    const film = this.#loaded?.film;
    if (film === undefined) return;
    const width = this.#room.clientWidth;
    if (width === 0) return;
    const { frame } = this.#drawing;
    const scale = width / frame.width;
    const context = sharpContext(this.#canvas, width, frame.height * scale);
    context.scale(scale, scale);
    const flying = film.flights.filter(
      ({ message }) => message.sendStart <= timePs && timePs < message.recvEnd,
    );
    const ink = token("ink");
    this.#showCount(flying);
    for (const flight of flying) this.#drawFlight(context, flight, film, ink, scale);
    this.#glow(film);
    this.#measure(film);
  }

  /** In the middle of a ring: the number of messages under way. */
  #showCount(flying: readonly Flight[]): void {
    this.#count.textContent = flying.length === 0 ? "" : `${flying.length}`;
    this.#countName.textContent =
      flying.length === 0 ? "" : flying.length === 1 ? "message under way" : "messages under way";
  }

  #drawFlight(
    context: CanvasRenderingContext2D,
    flight: Flight,
    film: Film,
    ink: string,
    scale: number,
  ): void {
    const { from, to, channel, sendStart, recvEnd, elements } = flight.message;
    const panel = this.#drawing.panels.find(({ channels }) => channels.has(channel));
    const way = panel?.ways.get(linkKey(from, to));
    if (panel === undefined || way === undefined) return;
    const u = eased((this.#timePs - sendStart) / (recvEnd - sendStart));
    // On small screens parcels stay large enough to be distinguished.
    const room = Math.min(1.6, Math.max(1, 0.85 / scale));
    const crowd = panel.radius < 10 ? 0.5 : panel.radius < 18 ? 0.7 : 1;
    const size = (8 + 5 * Math.sqrt(elements / this.#maxElements)) * room * crowd;
    drawTail(context, way, u, rankColour(from, film.ranks), size);
    const place: Point = way.at(u);
    const { order, final } = flight;
    const colours = { ink, paper: token("card"), well: token("line") };
    drawParcel(context, place, size, { order, final, ranks: film.ranks, ...colours });
  }

  #glow(film: Film): void {
    const span = Math.max(1, film.endPs * glowShare);
    const strength = this.#arrivals.map((times) => {
      const last = times.findLast((time) => time <= this.#timePs);
      return last === undefined ? 0 : Math.max(0, 1 - (this.#timePs - last) / span);
    });
    for (const halos of this.#halos) {
      halos.forEach((halo, rank) => {
        halo.style.opacity = `${0.55 * (strength[rank] ?? 0)}`;
      });
    }
  }

  /** The share of each rank's final contents that is there. */
  #measure(film: Film): void {
    for (const gauges of this.#gauges) {
      gauges.forEach((gauge, rank) => {
        const finals = film.strips[rank]?.changes.filter(({ final }) => final) ?? [];
        const done = finals.filter(({ atPs }) => atPs <= this.#timePs).length;
        const share = finals.length === 0 ? 0 : done / finals.length;
        gauge.style.strokeDashoffset = `${100 - 100 * share}`;
      });
    }
  }

  #build(film: Film, root: number | undefined, label: string): void {
    const { frame, panels } = this.#drawing;
    const picture = svg("svg", {
      viewBox: `0 0 ${frame.width} ${frame.height}`,
      role: "img",
      "aria-label": label,
    });
    this.#halos = [];
    this.#gauges = [];
    for (const panel of panels) {
      if (panel.title !== undefined) picture.append(titleOf(panel, panel.title));
      const links = svg("g", { class: "links" });
      for (const way of panel.ways.values()) links.append(svg("path", { d: pathOf(way.line) }));
      picture.append(links);
      const halos: SVGElement[] = [];
      const gauges: SVGElement[] = [];
      for (const place of panel.spots) {
        const { spot, halo, gauge } = spotOf(place, panel.radius, film, root);
        halos[place.rank] = halo;
        gauges[place.rank] = gauge;
        picture.append(spot);
      }
      this.#halos.push(halos);
      this.#gauges.push(gauges);
    }
    const [only] = panels;
    if (only !== undefined && (only.kind === "ring" || only.kind === "chain")) {
      const { x, y } = only.middle;
      const place = { transform: `translate(${x} ${y})`, "aria-hidden": "true" };
      picture.append(svg("g", place, this.#count, this.#countName));
    }
    this.#canvas = html("canvas", { "aria-hidden": "true" });
    this.#room.replaceChildren(picture, this.#canvas);
  }
}

/** A rank on the stage. */
function spotOf({ rank, x, y, label }: Spot, r: number, film: Film, root: number | undefined) {
  const spot = svg("g", {
    class: rank === root ? "spot root" : "spot",
    transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`,
    style: `--rank: ${rankStyle(rank, film.ranks)}`,
  });
  const halo = svg("circle", { class: "halo", r: r + 9 });
  const gauge = svg("circle", { class: "gauge", r: r + 4, pathLength: 100 });
  const number = svg("text", { "font-size": Math.max(11, r * 0.72), dy: "0.36em" }, `${rank}`);
  if (label !== undefined) {
    number.setAttribute("class", "beside");
    number.setAttribute("x", label.x.toFixed(1));
    number.setAttribute("y", label.y.toFixed(1));
  }
  spot.append(halo, svg("circle", { class: "gauge-room", r: r + 4 }), gauge);
  spot.append(svg("circle", { class: "disc", r }), number);
  if (rank === root) spot.append(svg("text", { class: "root-name", y: -r - 13 }, "root"));
  return { spot, halo, gauge };
}

function titleOf({ corner }: Panel, title: string): SVGElement {
  return svg("text", { class: "panel-name", x: corner.x + 16, y: corner.y + 24 }, title);
}

function describe(panels: readonly Panel[], film: Film): string {
  const names = { ring: "a ring", chain: "a chain", tree: "a tree", mesh: "a mesh" } as const;
  const figure =
    panels.length === 2
      ? "two trees, each for half of the elements"
      : names[panels[0]?.kind ?? "mesh"];
  const channels = new Set(film.flights.map(({ message }) => message.channel)).size;
  const over = channels > 1 ? ` over ${channels} channels` : "";
  const count = film.flights.length;
  const ranks = `${film.ranks} ${film.ranks === 1 ? "rank" : "ranks"}`;
  if (count === 0) return `${ranks}, no messages`;
  return `${ranks}, ${count.toLocaleString("en")} ${count === 1 ? "message" : "messages"}: ${figure}${over}`;
}

/** Slowly off, slowly in. */
function eased(u: number): number {
  return u * u * (3 - 2 * u) * 0.55 + u * 0.45;
}

function pathOf(line: (u: number) => Point): string {
  const points = Array.from({ length: 25 }, (_, i) => line(i / 24));
  return `M${points.map(({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}`;
}
