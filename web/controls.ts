/** The sentence that is the call, and the settings below it: menus and fields, filled from the state and read into it. */
import { dtypes } from "twinccl";
import { builtCollectives } from "twinccl/algorithms";
import { moves, traits } from "./data/calls.ts";
import { byId, html } from "./dom.ts";
import { isAcrossHosts, type PlanChoice, planChoices, planIds, takesChannels } from "./plans.ts";
import {
  channelCounts,
  defaults,
  networkSpeeds,
  opNames,
  type Reading,
  readState,
  type State,
  type ValueKind,
  valueKinds,
} from "./state.ts";

/** Labels as on the command line: `all-to-allv` for `allToAllv`. */
const collectiveNames: Readonly<Record<string, string>> = Object.fromEntries(
  builtCollectives.map((name) => [
    name,
    name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`),
  ]),
);

const opLabels: Readonly<Record<string, string>> = { preMul: "pre-multiplied sum" };

const valueLabels: Readonly<Record<ValueKind, string>> = {
  mixed: "mixed magnitudes",
  whole: "small integers",
  wild: "any bits",
};

/** Menus and fields by the key of the state that they hold. */
const controls = {
  collective: byId("collective", HTMLSelectElement),
  count: byId("count", HTMLInputElement),
  dtype: byId("dtype", HTMLSelectElement),
  op: byId("op", HTMLSelectElement),
  scalar: byId("scalar", HTMLInputElement),
  root: byId("root", HTMLInputElement),
  ranks: byId("ranks", HTMLInputElement),
  plan: byId("plan", HTMLSelectElement),
  channels: byId("channels", HTMLSelectElement),
  network: byId("network", HTMLSelectElement),
  values: byId("values", HTMLSelectElement),
  seed: byId("seed", HTMLInputElement),
  latency: byId("latency", HTMLInputElement),
  bandwidth: byId("bandwidth", HTMLInputElement),
} as const;

const keys = Object.keys(controls) as (keyof typeof controls)[];

/** Fills the menus and calls `changed` with what a change makes of the state. */
export function startControls(now: () => State, changed: (reading: Reading) => void): void {
  fill(controls.collective, builtCollectives, collectiveNames);
  fill(controls.dtype, dtypes);
  fill(controls.op, opNames, opLabels);
  fill(controls.values, valueKinds, valueLabels);
  fill(controls.channels, channelCounts.map(String), { "0": "as NCCL chooses" });
  fill(controls.network, networkSpeeds.map(String));
  for (const key of keys) {
    controls[key].addEventListener("change", () => {
      const before = now();
      changed(
        readState([[key, controls[key].value]], key === "collective" ? fresh(before) : before),
      );
    });
  }
  byId("call", HTMLFormElement).addEventListener("submit", (event) => event.preventDefault());
}

/** Shows a state. */
export function showControls(state: State, faults: readonly string[]): void {
  const choices = planChoices(state.collective, state.ranks);
  const groups = [...new Set(choices.map(({ group }) => group))];
  controls.plan.replaceChildren(
    ...groups.map((name) =>
      menuGroup(
        name,
        choices.filter(({ group }) => group === name),
      ),
    ),
  );
  for (const key of keys) {
    const text = `${state[key]}`;
    controls[key].value = text;
    if (controls[key] instanceof HTMLInputElement) {
      controls[key].style.setProperty("--digits", `${Math.max(1, text.length)}`);
    }
  }
  const { reduces, rooted } = traits(state);
  const shown: Readonly<Record<string, boolean>> = {
    data: moves(state),
    op: reduces,
    scalar: reduces && state.op === "preMul",
    root: rooted,
    channels: takesChannels(state),
    network: isAcrossHosts(state),
  };
  for (const element of document.querySelectorAll<HTMLElement>("[data-for]")) {
    element.hidden = shown[element.dataset["for"] ?? ""] === false;
  }
  showFaults(faults);
}

/** Shows faults, each in a line; nothing for none. */
export function showFaults(faults: readonly string[]): void {
  byId("faults", HTMLUListElement).replaceChildren(...faults.map((fault) => html("li", {}, fault)));
}

/** Another collective has other plans: its first one, unless the plan of the same name exists there too. */
function fresh(state: State): State {
  const collective = builtCollectives.find((name) => name === controls.collective.value);
  const stays = planIds(collective ?? state.collective, state.ranks).includes(state.plan);
  return { ...state, plan: stays ? state.plan : defaults.plan, rank: 0, element: 0 };
}

function menuGroup(group: string, choices: readonly PlanChoice[]): HTMLElement {
  return html(
    "optgroup",
    { label: group },
    ...choices.map(({ id, label }) => html("option", { value: id }, label)),
  );
}

function fill(
  menu: HTMLSelectElement,
  names: readonly string[],
  labels: Readonly<Record<string, string>> = {},
): void {
  menu.replaceChildren(
    ...names.map((name) => html("option", { value: name }, labels[name] ?? name)),
  );
}
