/** The timeline: a lane for every rank's ports, or for every link, in step with the stage. */
import type { Film, Flight } from "../data/film.ts";
import { sharpContext } from "../dom.ts";
import { rankColour, token } from "../theme.ts";
import { ticks, tickText } from "./time-text.ts";

export type Lanes = "ranks" | "links";

/** Width of the lanes' names; tokens.css has the same. */
const gutter = 64;
const top = 22;
const port = 9;

/** A bar of a lane. */
interface Bar {
  readonly lane: number;
  readonly beginPs: number;
  readonly endPs: number;
  readonly flight: Flight;
}

/** Lanes with their names, and everything in them. */
interface Chart {
  readonly names: readonly { readonly text: string; readonly rank: number }[];
  readonly bars: readonly Bar[];
  /** Height of a lane. */
  readonly height: number;
}

/** Draws the lanes, and moves the playhead over them. */
export class Timeline {
  readonly #canvas: HTMLCanvasElement;
  readonly #playhead: HTMLElement;
  #film: Film | undefined;
  #chart: Chart | undefined;
  #timePs = 0;

  constructor(
    canvas: HTMLCanvasElement,
    playhead: HTMLElement,
    seek: (timePs: number, isPassing: boolean) => void,
  ) {
    this.#canvas = canvas;
    this.#playhead = playhead;
    new ResizeObserver(() => this.draw()).observe(canvas);
    const toTime = (event: PointerEvent): void => {
      const { left, width } = canvas.getBoundingClientRect();
      const share = (event.clientX - left - gutter) / (width - gutter);
      seek(share * (this.#film?.endPs ?? 0), true);
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      toTime(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (canvas.hasPointerCapture(event.pointerId)) toTime(event);
    });
    canvas.addEventListener("lostpointercapture", () => seek(this.#timePs, false));
  }

  /** Loads a film; gives the lanes in words. */
  load(film: Film, lanes: Lanes): string {
    this.#film = film;
    this.#chart = lanes === "ranks" ? byRank(film) : byLink(film);
    const text =
      lanes === "ranks"
        ? "Every rank's ports: what it sends above, what it receives below; strong colours are complete values."
        : "Every link: from the moment a message leaves until all of it has arrived.";
    this.#canvas.setAttribute("aria-label", `Timeline. ${text}`);
    this.draw();
    return text;
  }

  /** The playhead only. */
  move(timePs: number): void {
    this.#timePs = timePs;
    const share =
      this.#film === undefined || this.#film.endPs === 0 ? 0 : timePs / this.#film.endPs;
    this.#playhead.style.setProperty("--share", `${share}`);
  }

  draw(): void {
    const [film, chart] = [this.#film, this.#chart];
    const width = this.#canvas.clientWidth;
    if (film === undefined || chart === undefined || width === 0) return;
    const height = top + chart.names.length * chart.height + 4;
    this.#playhead.style.setProperty("--height", `${height}px`);
    const context = sharpContext(this.#canvas, width, height);
    const x = (timePs: number): number =>
      gutter + ((width - gutter - 1) * timePs) / Math.max(1, film.endPs);
    context.font = "11px ui-sans-serif, system-ui, sans-serif";
    context.textBaseline = "middle";
    this.#drawAxis(context, film, x, height, width);
    chart.names.forEach(({ text, rank }, lane) => {
      context.fillStyle = rankColour(rank, film.ranks);
      context.fillText(text, 2, top + lane * chart.height + chart.height / 2);
    });
    for (const bar of chart.bars) {
      const { order, final } = bar.flight;
      const left = x(bar.beginPs);
      const wide = Math.max(1.5, x(bar.endPs) - left - 0.5);
      const above = top + bar.lane * chart.height;
      drawBar(context, { order, final, ranks: film.ranks }, { left, wide, above, bar, chart });
    }
    this.move(this.#timePs);
    this.#reachable();
  }

  /** Keys can scroll the lanes where there are more of them than room. */
  #reachable(): void {
    const room = this.#canvas.parentElement;
    if (room === null) return;
    if (room.scrollHeight > room.clientHeight + 1) room.tabIndex = 0;
    else room.removeAttribute("tabindex");
  }

  #drawAxis(
    context: CanvasRenderingContext2D,
    film: Film,
    x: (timePs: number) => number,
    height: number,
    width: number,
  ): void {
    context.strokeStyle = token("line");
    context.lineWidth = 1;
    context.fillStyle = token("muted");
    for (const tick of ticks(film.endPs, width / 110)) {
      const at = Math.round(x(tick)) + 0.5;
      context.beginPath();
      context.moveTo(at, top - 6);
      context.lineTo(at, height);
      context.stroke();
      const text = tickText(tick, film.endPs);
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(Math.max(at - half, gutter), width - 2 * half), 8);
    }
  }
}

function drawBar(
  context: CanvasRenderingContext2D,
  { order, final, ranks }: { order: readonly number[]; final: boolean; ranks: number },
  box: { left: number; wide: number; above: number; bar: Bar; chart: Chart },
): void {
  const { left, wide, above, bar, chart } = box;
  const received = chart.height > 2 * port && bar.beginPs === bar.flight.message.recvStart;
  const y = above + (received ? port + 2 : 1);
  const height = chart.height > 2 * port ? port : chart.height - 3;
  context.fillStyle = rankColour(order[0] ?? 0, ranks, final ? 1 : 0.5);
  context.beginPath();
  context.roundRect(left, y, wide, height, Math.min(2.5, wide / 2));
  context.fill();
}

function byRank(film: Film): Chart {
  const names = Array.from({ length: film.ranks }, (_, rank) => ({ text: `rank ${rank}`, rank }));
  const bars = film.flights.flatMap((flight): Bar[] => {
    const { from, to, sendStart, sendEnd, recvStart, recvEnd } = flight.message;
    return [
      { lane: from, beginPs: sendStart, endPs: sendEnd, flight },
      { lane: to, beginPs: recvStart, endPs: recvEnd, flight },
    ];
  });
  return { names, bars, height: 2 * port + 8 };
}

function byLink(film: Film): Chart {
  const lanes = new Map<number, number>();
  const key = ({ message }: Flight): number => message.from * film.ranks + message.to;
  for (const link of [...new Set(film.flights.map(key))].sort((a, b) => a - b)) {
    lanes.set(link, lanes.size);
  }
  const names = [...lanes.keys()].map((link) => {
    const [from, to] = [Math.floor(link / film.ranks), link % film.ranks];
    return { text: `${from} → ${to}`, rank: from };
  });
  const bars = film.flights.map((flight): Bar => {
    const { sendStart, recvEnd } = flight.message;
    return { lane: lanes.get(key(flight)) ?? 0, beginPs: sendStart, endPs: recvEnd, flight };
  });
  return { names, bars, height: 15 };
}
