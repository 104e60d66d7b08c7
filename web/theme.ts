/** Light or dark: as the system has it, or as the reader chose; and the colours that drawings take from it. */

const choices = ["auto", "light", "dark"] as const;
type Choice = (typeof choices)[number];

const names = { auto: "Auto", light: "Light", dark: "Dark" } as const;
const labels = {
  auto: "Theme: auto, as the system has it",
  light: "Theme: light",
  dark: "Theme: dark",
} as const;
const storageKey = "twinccl-theme";
const tokens = new Map<string, string>();
const systemDark = matchMedia("(prefers-color-scheme: dark)");

/** Wires the button that goes round the themes; `changed` is called when drawings need new colours. */
export function startTheme(button: HTMLButtonElement, changed: () => void): void {
  let choice = stored();
  const apply = (): void => {
    if (choice === "auto") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = choice;
    button.textContent = names[choice];
    button.setAttribute("aria-label", labels[choice]);
    tokens.clear();
    changed();
  };
  button.addEventListener("click", () => {
    choice = choices[(choices.indexOf(choice) + 1) % choices.length] ?? "auto";
    store(choice);
    apply();
  });
  systemDark.addEventListener("change", apply);
  apply();
}

/** True while the page is dark. */
export function isDark(): boolean {
  const chosen = document.documentElement.dataset["theme"];
  return chosen === undefined ? systemDark.matches : chosen === "dark";
}

/** A colour of tokens.css, as a canvas takes it. */
export function token(name: string): string {
  const known = tokens.get(name);
  if (known !== undefined) return known;
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  tokens.set(name, color);
  return color;
}

/** The colour of a rank, for a canvas. */
export function rankColour(rank: number, ranks: number, alpha = 1): string {
  const { light, dark } = shades(rank, ranks);
  return `oklch(${isDark() ? dark : light} / ${alpha})`;
}

/** The colour of a rank, for style sheets: it follows the theme by itself. */
export function rankStyle(rank: number, ranks: number): string {
  const { light, dark } = shades(rank, ranks);
  return `light-dark(oklch(${light}), oklch(${dark}))`;
}

/** Hues go once round, evenly, from blue on; of many ranks, neighbours differ in lightness too. */
function shades(rank: number, ranks: number): { readonly light: string; readonly dark: string } {
  const hue = (258 + (rank * 360) / Math.max(ranks, 4)) % 360;
  const lift = ranks > 10 && rank % 2 === 1 ? 0.09 : 0;
  return {
    light: `${(0.62 + lift).toFixed(2)} 0.145 ${hue.toFixed(1)}`,
    dark: `${(0.74 - lift).toFixed(2)} 0.125 ${hue.toFixed(1)}`,
  };
}

function stored(): Choice {
  try {
    return choices.find((choice) => choice === localStorage.getItem(storageKey)) ?? "auto";
  } catch {
    return "auto";
  }
}

function store(choice: Choice): void {
  try {
    localStorage.setItem(storageKey, choice);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
}
