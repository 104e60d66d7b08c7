/** The page: reads its address, runs the call, and keeps everything that shows it in step. */

import { type CallResult, compareAll, faultText, runCall } from "./call-result.ts";
import { showControls, showFaults, startControls } from "./controls.ts";
import { operatorOf, traits } from "./data/calls.ts";
import { placeOf, type Target, targetAt } from "./data/strip.ts";
import { byId, html } from "./dom.ts";
import { cellOf, laneOf } from "./inspect/cell.ts";
import { inspect } from "./inspect/hops.ts";
import { Player } from "./player.ts";
import { Stage } from "./stage/stage.ts";
import { type Reading, readState, type State, stateKeys, writeState } from "./state.ts";
import { startTheme } from "./theme.ts";
import { showTransport, startTransport } from "./transport.ts";
import { showFacts } from "./views/facts.ts";
import { showInspector } from "./views/inspector.ts";
import { MemoryView } from "./views/memory.ts";
import { Timeline } from "./views/timeline.ts";
import { showRefusal, showVerdict } from "./views/verdict.ts";

/** Settings that no run depends on: a change of these only changes the views. */
const viewKeys: readonly (keyof State)[] = ["rank", "element", "time", "lanes"];

class Page {
  #state: State;
  #result: CallResult | undefined;
  /** The state of the last run, also before its result; `undefined` after a failure. */
  #lastRun: State | undefined;
  /** Counts runs, so that one that was overtaken shows nothing. */
  #runs = 0;
  readonly #stage = new Stage(byId("stage", HTMLElement));
  readonly #memory = new MemoryView(byId("memory", HTMLCanvasElement), (clicked) => {
    if (this.#result === undefined) return;
    const { state, structure } = this.#result;
    this.#choose(targetAt(state, structure, clicked.rank, clicked.element));
  });
  readonly #timeline = new Timeline(
    byId("timeline", HTMLCanvasElement),
    byId("playhead", HTMLElement),
    (timePs, isPassing) => {
      this.#player.pause();
      this.#player.seek(timePs, isPassing);
    },
  );
  readonly #player = new Player((...now) => this.#tick(...now));
  readonly #elementRank = byId("element-rank", HTMLSelectElement);
  readonly #element = byId("element", HTMLInputElement);

  constructor() {
    this.#state = addressed().state;
    startControls(
      () => this.#state,
      (reading) => void this.#become(reading),
    );
    startTransport(this.#player);
    startTheme(byId("theme", HTMLButtonElement), () => this.#redraw());
    this.#startInspector();
    for (const radio of document.querySelectorAll<HTMLInputElement>("input[name=lanes]")) {
      radio.addEventListener("change", () => {
        void this.#become(readState([["lanes", radio.value]], this.#state));
      });
    }
    byId("copy-link", HTMLButtonElement).addEventListener("click", (event) => {
      void copyLink(event.currentTarget as HTMLButtonElement);
    });
    addEventListener("popstate", () => void this.#become(addressed(), true));
    void this.#become(addressed(), true);
  }

  /** Takes on a state: runs the call again where it is another one, and only then. */
  async #become({ state, faults }: Reading, fromAddress = false): Promise<void> {
    const before = this.#lastRun;
    const same =
      before !== undefined &&
      stateKeys.every((key) => viewKeys.includes(key) || before[key] === state[key]);
    this.#state = fromAddress || same ? state : { ...state, time: -1 };
    showControls(this.#state, faults);
    const radio = document.querySelector<HTMLInputElement>(`input[value=${state.lanes}]`);
    if (radio !== null) radio.checked = true;
    if (!fromAddress) this.#remember();
    // The run may be under way: its film begins at this time.
    if (same && fromAddress) this.#lastRun = state;
    if (!same) await this.#run();
    else if (this.#result !== undefined) {
      this.#showTimeline(this.#result);
      this.#showElement();
      if (fromAddress && state.time >= 0) this.#player.seek(state.time);
    }
  }

  async #run(): Promise<void> {
    const run = ++this.#runs;
    const state = this.#state;
    this.#lastRun = state;
    const { dataset } = document.documentElement;
    // Tests and other readers of the page wait for the number of the run.
    dataset["ran"] = "running";
    try {
      const result = await runCall(state);
      if (run !== this.#runs) return;
      this.#result = result;
      this.#present(result);
      await compareAll(result, (findings, details) => {
        if (run !== this.#runs) return;
        showVerdict(byId("verdict", HTMLElement), findings, state, details);
        this.#showElement();
      });
    } catch (error) {
      if (run === this.#runs) this.#fail(state, error);
    }
    if (run === this.#runs) dataset["ran"] = `${run}`;
  }

  /** A call without a result shows why, and nothing of the one before. */
  #fail(state: State, error: unknown): void {
    this.#result = undefined;
    this.#lastRun = undefined;
    // What is hidden is not drawn: drawing itself may have failed.
    document.documentElement.dataset["refused"] = "yes";
    this.#player.load(0, [], 0, false);
    showFaults([faultText(error)]);
    showRefusal(byId("verdict", HTMLElement), state);
  }

  #present(result: CallResult): void {
    const { film, state, structure, explanation } = result;
    delete document.documentElement.dataset["refused"];
    const { rooted } = traits(state);
    const caption = this.#stage.load(film, rooted ? state.root : undefined, (channels) =>
      rootOf(result, channels),
    );
    byId("stage-caption", HTMLElement).textContent = caption;
    this.#memory.load(film);
    byId("memory-caption", HTMLElement).textContent = memoryCaption(state);
    this.#showTimeline(result);
    showFacts(byId("facts", HTMLElement), explanation, structure.plan.summary, state);
    this.#elementRank.replaceChildren(
      ...structure.layout.out.flatMap(({ offsets }, rank) =>
        offsets.length === 0 ? [] : [html("option", { value: rank }, `${rank}`)],
      ),
    );
    const hasElements = this.#elementRank.length > 0;
    for (const field of [this.#elementRank, this.#element]) field.disabled = !hasElements;
    byId("memory-hint", HTMLElement).hidden = !hasElements;
    this.#showElement();
    const { time } = this.#lastRun ?? state;
    const still = time >= 0 || matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.#player.load(film.endPs, film.beats, Math.max(0, time), !still);
  }

  #showTimeline({ film }: CallResult): void {
    const text = this.#timeline.load(film, this.#state.lanes);
    byId("timeline-caption", HTMLElement).textContent = text;
  }

  #showElement(): void {
    const result = this.#result;
    if (result === undefined) return;
    const { state, structure, film, inputs, outcomes } = result;
    const target = this.#target(result);
    const report = inspect({ structure, film, dtype: state.dtype, inputs }, target);
    this.#elementRank.value = `${target.rank}`;
    this.#element.value = `${target.element}`;
    this.#element.max = `${Math.max(0, (outcomes[0]?.outputs[target.rank]?.length ?? 0) - 1)}`;
    const results = outcomes.flatMap(({ executor, outputs }) => {
      const output = outputs[target.rank];
      if (output === undefined || target.element >= output.length) return [];
      return [
        { executor, bits: cellOf(state.dtype, laneOf(state.dtype, output, target.element)).bits },
      ];
    });
    showInspector(byId("inspector", HTMLElement), report, {
      op: traits(state).reduces ? operatorOf(state) : undefined,
      ranks: state.ranks,
      endPs: film.endPs,
      results,
    });
    this.#memory.mark(target.rank, report && placeOf(state, structure, target));
    this.#memory.draw(this.#player.timePs);
  }

  /** The chosen element, or the nearest one that there is. */
  #target({ structure, outcomes }: CallResult): Target {
    const { rank, element } = this.#state;
    const has = (each: number): boolean => (structure.layout.out[each]?.offsets.length ?? 0) > 0;
    const owner = has(rank)
      ? rank
      : Math.max(
          0,
          structure.layout.out.findIndex((_, i) => has(i)),
        );
    const length = outcomes[0]?.outputs[owner]?.length ?? 0;
    return { rank: owner, element: Math.max(0, Math.min(element, length - 1)) };
  }

  #choose({ rank, element }: Target): void {
    this.#state = { ...this.#state, rank, element };
    this.#remember();
    this.#showElement();
  }

  #startInspector(): void {
    const read = (): void => {
      const texts = [
        ["rank", this.#elementRank.value],
        ["element", this.#element.value],
      ] as const;
      const { state, faults } = readState(texts, this.#state);
      showFaults(faults);
      this.#choose(state);
    };
    this.#elementRank.addEventListener("change", read);
    this.#element.addEventListener("change", read);
  }

  #tick(timePs: number, playing: boolean, isPassing: boolean): void {
    const wasPlaying = document.documentElement.dataset["playing"] === "yes";
    document.documentElement.dataset["playing"] = playing ? "yes" : "no";
    showTransport(timePs, this.#player.endPs, playing);
    this.#stage.draw(timePs);
    this.#memory.draw(timePs);
    this.#timeline.move(timePs);
    // While it plays the address stays: sixty changes a second are of no use.
    if (playing || this.#result === undefined) return;
    this.#state = {
      ...this.#state,
      time: wasPlaying && timePs === this.#player.endPs ? -1 : timePs,
    };
    if (!isPassing) this.#remember();
  }

  #redraw(): void {
    this.#stage.draw(this.#player.timePs);
    this.#memory.draw(this.#player.timePs);
    this.#timeline.draw();
  }

  #remember(): void {
    const text = writeState(this.#state);
    history.replaceState(null, "", text === "" ? location.pathname : `?${text}`);
  }
}

function addressed(): Reading {
  return readState(new URLSearchParams(location.search));
}

/** The rank that a tree of these channels hangs from: where its values become complete. */
function rootOf({ state, film }: CallResult, channels: ReadonlySet<number>): number {
  if (traits(state).rooted) return state.root;
  const first = film.flights.find(({ message, final }) => final && channels.has(message.channel));
  return first?.message.from ?? 0;
}

function memoryCaption(state: State): string {
  if (state.collective === "barrier") return "nothing: a barrier moves no data";
  return traits(state).reduces
    ? "pale: own input · stripes: contributions, first at the bottom · strong: complete"
    : "coloured by the rank that the values come from";
}

async function copyLink(button: HTMLButtonElement): Promise<void> {
  const before = "Copy link";
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Copy the address bar";
  }
  setTimeout(() => {
    button.textContent = before;
  }, 2000);
}

new Page();
