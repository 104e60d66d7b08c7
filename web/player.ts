/** The virtual clock of the page: plays, pauses, steps from message to message. */

/** Wall seconds that a whole film takes at speed 1. */
const filmSeconds = 9;

/** Called at every change of time or of playing; `isPassing` for a time on the way of a drag or a held key to another one. */
export type Listener = (timePs: number, playing: boolean, isPassing: boolean) => void;

/** Moves through a film. */
export class Player {
  #endPs = 0;
  #beats: readonly number[] = [];
  #timePs = 0;
  #speed = 1;
  #playing = false;
  #lastFrame = 0;
  /** Counts the times it began to play: the frames of an earlier one end. */
  #runs = 0;
  readonly #listener: Listener;

  constructor(listener: Listener) {
    this.#listener = listener;
  }

  get timePs(): number {
    return this.#timePs;
  }

  get endPs(): number {
    return this.#endPs;
  }

  get playing(): boolean {
    return this.#playing;
  }

  /** Another film, from a time on; `plays` begins it at once. */
  load(endPs: number, beats: readonly number[], timePs: number, plays: boolean): void {
    this.#endPs = endPs;
    this.#beats = beats;
    this.#playing = false;
    this.#timePs = this.#within(timePs);
    if (plays && endPs > 0) this.play();
    else this.#notify();
  }

  /** 1: a film takes nine seconds. */
  set speed(speed: number) {
    this.#speed = speed;
  }

  seek(timePs: number, isPassing = false): void {
    this.#timePs = this.#within(timePs);
    this.#notify(isPassing);
  }

  play(): void {
    if (this.#playing || this.#endPs === 0) return;
    if (this.#timePs >= this.#endPs) this.#timePs = 0;
    this.#playing = true;
    this.#lastFrame = performance.now();
    const run = ++this.#runs;
    requestAnimationFrame((now) => this.#frame(now, run));
    this.#notify();
  }

  pause(): void {
    if (!this.#playing) return;
    this.#playing = false;
    this.#timePs = this.#within(this.#timePs);
    this.#notify();
  }

  toggle(): void {
    if (this.#playing) this.pause();
    else this.play();
  }

  /** To the next time at which a message arrives, or the one before. */
  step(way: 1 | -1, isPassing = false): void {
    this.pause();
    const later = this.#beats.find((beat) => beat > this.#timePs);
    const earlier = this.#beats.findLast((beat) => beat < this.#timePs);
    this.seek(way > 0 ? (later ?? this.#endPs) : (earlier ?? 0), isPassing);
  }

  #within(timePs: number): number {
    return Math.round(Math.min(this.#endPs, Math.max(0, timePs)));
  }

  #frame(now: number, run: number): void {
    if (!this.#playing || run !== this.#runs) return;
    const seconds = Math.min(0.1, Math.max(0, (now - this.#lastFrame) / 1000));
    this.#lastFrame = now;
    const timePs = this.#timePs + (this.#endPs * this.#speed * seconds) / filmSeconds;
    this.#timePs = Math.min(this.#endPs, timePs);
    if (this.#timePs === this.#endPs) this.#playing = false;
    else requestAnimationFrame((next) => this.#frame(next, run));
    this.#notify();
  }

  #notify(isPassing = false): void {
    this.#listener(this.#timePs, this.#playing, isPassing);
  }
}
