/** Play, pause, step, speed and the scrubber, with mouse, touch and keys. */
import { byId, html, svg } from "./dom.ts";
import type { Player } from "./player.ts";
import { timeText } from "./views/time-text.ts";

const speeds = [0.1, 0.25, 0.5, 1, 2, 4] as const;

/** Shapes of the buttons, in a box of 24. */
const shapes = {
  play: "M8 5.5v13l10.5-6.5z",
  pause: "M7 5h3.5v14H7zM13.5 5H17v14h-3.5z",
  back: "M17.5 6v12L9 12zM6 6h2v12H6z",
  forward: "M6.5 6v12L15 12zM16 6h2v12h-2z",
} as const;

const play = byId("play", HTMLButtonElement);
const scrubber = byId("scrubber", HTMLInputElement);
const clock = byId("clock", HTMLOutputElement);

/** Wires the buttons, the scrubber and the keys. */
export function startTransport(player: Player): void {
  draw(byId("back", HTMLButtonElement), "back");
  draw(byId("forward", HTMLButtonElement), "forward");
  play.addEventListener("click", () => player.toggle());
  byId("back", HTMLButtonElement).addEventListener("click", () => player.step(-1));
  byId("forward", HTMLButtonElement).addEventListener("click", () => player.step(1));
  const speed = byId("speed", HTMLSelectElement);
  speed.append(...speeds.map((each) => html("option", { value: each }, `${each} ×`)));
  speed.value = "1";
  speed.addEventListener("change", () => {
    player.speed = Number(speed.value);
  });
  scrubber.addEventListener("input", () => {
    player.pause();
    player.seek(Number(scrubber.value), true);
  });
  scrubber.addEventListener("change", () => player.seek(Number(scrubber.value)));
  scrubber.addEventListener("keydown", (event) => scrub(event, player));
  document.addEventListener("keydown", (event) => shortcut(event, player));
  document.addEventListener("keyup", (event) => release(event, player));
}

/** Shows a time. */
export function showTransport(timePs: number, endPs: number, playing: boolean): void {
  draw(play, playing ? "pause" : "play");
  play.setAttribute("aria-label", playing ? "Pause" : "Play");
  scrubber.max = `${endPs}`;
  scrubber.value = `${timePs}`;
  const text = `${timeText(timePs, endPs)} of ${timeText(endPs, endPs)}`;
  scrubber.setAttribute("aria-valuetext", text);
  clock.value = text;
}

/** A held key goes through many times; the one at its release stays. */
function release({ target, key }: KeyboardEvent, player: Player): void {
  const steps = (key === "," || key === ".") && !isWritten(target);
  const scrubs = target === scrubber && /^(Arrow|Page)/.test(key);
  if (steps || scrubs) player.seek(player.timePs);
}

/** True for a field that takes text or letters. */
function isWritten(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches("input:not([type=range]), select");
}

/** Arrows go from message to message; pages take a tenth; the ends are the range's own. */
function scrub(event: KeyboardEvent, player: Player): void {
  const { key } = event;
  if (key === "ArrowRight" || key === "ArrowUp") player.step(1, true);
  else if (key === "ArrowLeft" || key === "ArrowDown") player.step(-1, true);
  else if (key === "PageUp" || key === "PageDown") {
    player.pause();
    player.seek(player.timePs + (key === "PageUp" ? 0.1 : -0.1) * player.endPs, true);
  } else return;
  event.preventDefault();
}

/** Keys of the whole page, where no field wants them. */
function shortcut(event: KeyboardEvent, player: Player): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { target, key } = event;
  if (isWritten(target)) return;
  const presses = target instanceof HTMLElement && target.matches("button, [tabindex]");
  if (key === " " && !presses) player.toggle();
  else if (key === ",") player.step(-1, true);
  else if (key === ".") player.step(1, true);
  else return;
  event.preventDefault();
}

function draw(button: HTMLButtonElement, shape: keyof typeof shapes): void {
  if (button.dataset["shape"] === shape) return;
  button.dataset["shape"] = shape;
  const picture = svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" });
  picture.append(svg("path", { d: shapes[shape] }));
  button.replaceChildren(picture);
}
