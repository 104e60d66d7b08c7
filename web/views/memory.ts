/** The memory of every rank: a strip a rank, each chunk in the colours of its contributions, in the order of folding. */
import type { Film } from "../data/film.ts";
import type { Strip, Target } from "../data/strip.ts";
import { sharpContext } from "../dom.ts";
import { isDark, rankColour, token } from "../theme.ts";

const gutter = 30;
const gap = 6;

/** Draws the strips, and reports the clicked place of one. */
export class MemoryView {
  readonly #canvas: HTMLCanvasElement;
  #film: Film | undefined;
  #mark: { readonly rank: number; readonly place: number } | undefined;
  #timePs = 0;

  constructor(canvas: HTMLCanvasElement, picked: (target: Target) => void) {
    this.#canvas = canvas;
    canvas.addEventListener("click", (event) => {
      const place = this.#placeOf(event);
      if (place !== undefined) picked(place);
    });
    new ResizeObserver(() => this.draw(this.#timePs)).observe(canvas);
  }

  load(film: Film): void {
    this.#film = film;
    this.#canvas.setAttribute(
      "aria-label",
      `Memory of ${film.ranks} ranks: each chunk in the colours of the contributions it holds`,
    );
  }

  /** Marks an element of a rank's strip. */
  mark(rank: number, place: number | undefined): void {
    this.#mark = place === undefined ? undefined : { rank, place };
  }

  draw(timePs: number): void {
    this.#timePs = timePs;
    const film = this.#film;
    const width = this.#canvas.clientWidth;
    if (film === undefined || width === 0) return;
    const { row, height } = this.#rows(film);
    const context = sharpContext(this.#canvas, width, height);
    const colours = {
      muted: token("muted"),
      empty: token("well"),
      ink: token("ink"),
      card: token("card"),
    };
    const longest = Math.max(1, ...film.strips.map(({ length }) => length));
    const span = width - gutter;
    context.font = "600 12px ui-sans-serif, system-ui, sans-serif";
    context.textBaseline = "middle";
    film.strips.forEach((strip, rank) => {
      const top = rank * (row + gap);
      context.fillStyle = rankColour(rank, film.ranks);
      context.fillText(`${rank}`, 2, top + row / 2);
      drawStrip(context, strip, timePs, {
        left: gutter,
        top,
        height: row,
        scale: span / longest,
        ranks: film.ranks,
        ...colours,
      });
    });
    this.#drawMark(context, film, {
      row,
      scale: span / longest,
      ink: colours.ink,
      card: colours.card,
    });
  }

  #rows(film: Film): { readonly row: number; readonly height: number } {
    const row = Math.max(12, Math.min(56, Math.round(400 / film.ranks) - gap));
    return { row, height: film.ranks * (row + gap) - gap + 2 };
  }

  #drawMark(
    context: CanvasRenderingContext2D,
    film: Film,
    { row, scale, ink, card }: { row: number; scale: number; ink: string; card: string },
  ): void {
    const mark = this.#mark;
    if (mark === undefined || film.strips[mark.rank] === undefined) return;
    const x = gutter + (mark.place + 0.5) * scale;
    const top = mark.rank * (row + gap);
    context.fillStyle = card;
    context.fillRect(x - 3, top - 2, 6, row + 4);
    context.fillStyle = ink;
    context.fillRect(x - 1, top - 2, 2, row + 4);
  }

  #placeOf(event: MouseEvent): Target | undefined {
    const film = this.#film;
    if (film === undefined) return undefined;
    const { left, top, width } = this.#canvas.getBoundingClientRect();
    const { row } = this.#rows(film);
    const rank = Math.floor((event.clientY - top) / (row + gap));
    const longest = Math.max(1, ...film.strips.map(({ length }) => length));
    const share = (event.clientX - left - gutter) / (width - gutter);
    const element = Math.floor(share * longest);
    const strip = film.strips[rank];
    return strip !== undefined && element >= 0 && element < strip.length
      ? { rank, element }
      : undefined;
  }
}

interface StripLook {
  readonly left: number;
  readonly top: number;
  readonly height: number;
  /** Pixels an element. */
  readonly scale: number;
  readonly ranks: number;
  readonly empty: string;
  readonly ink: string;
  readonly card: string;
}

function drawStrip(
  context: CanvasRenderingContext2D,
  strip: Strip,
  timePs: number,
  look: StripLook,
): void {
  const { left, top, height, scale, ranks, empty } = look;
  const { offsets, lengths } = strip.chunks;
  const held = new Map<number, { order: readonly number[]; final: boolean }>();
  for (const change of strip.changes) {
    if (change.atPs > timePs) break;
    held.set(change.chunk, change);
  }
  offsets.forEach((offset, chunk) => {
    const length = lengths[chunk] ?? 0;
    if (length === 0) return;
    // Whole pixels, so that neighbours leave no hairline between them.
    const x = Math.round(left + offset * scale);
    const seam = length * scale > 6 ? 1 : 0;
    const width = Math.max(1, Math.round(left + (offset + length) * scale) - x - seam);
    const now = held.get(chunk);
    context.fillStyle = empty;
    context.fillRect(x, top, width, height);
    if (now !== undefined) {
      drawOrder(context, now, { x, top, width, height, ranks });
    } else if (strip.start !== undefined) {
      context.fillStyle = rankColour(strip.start, ranks, isDark() ? 0.28 : 0.24);
      context.fillRect(x, top, width, height);
    }
  });
}

/** A stripe for each contribution, the first one folded at the bottom. */
function drawOrder(
  context: CanvasRenderingContext2D,
  { order, final }: { order: readonly number[]; final: boolean },
  box: { x: number; top: number; width: number; height: number; ranks: number },
): void {
  const { x, top, width, height, ranks } = box;
  const full = final || order.length >= ranks;
  const stripe = height / (full ? order.length : ranks);
  order.forEach((rank, i) => {
    context.fillStyle = rankColour(rank, ranks, final ? 1 : 0.6);
    context.fillRect(x, top + height - (i + 1) * stripe, width, stripe + 0.3);
  });
}
