/** The plan in a few facts. */
import type { Explanation } from "twinccl";
import { html } from "../dom.ts";
import { takesChannels } from "../plans.ts";
import type { State } from "../state.ts";
import { codeOf } from "./code.ts";
import { timeText } from "./time-text.ts";

/** Shows what `explain` says about the call, and the line of code that makes it. */
export function showFacts(
  room: HTMLElement,
  explanation: Explanation,
  summary: string,
  state: State,
): void {
  const { algorithm, channels, steps, sentBytes, predictedNs, predictedFor, claim } = explanation;
  const time = timeText(1000 * predictedNs, 1000 * predictedNs);
  const rows: [string, string][] = [
    ["algorithm", algorithm],
    ["in a sentence", summary],
    ["channels", channelsText(channels, state)],
    ["steps one after another", `${steps}`],
    ["sent by the busiest rank", bytes(sentBytes)],
    ["predicted", predictedFor === undefined ? time : `${time} for ${predictedFor}`],
    ["about NCCL's bits", claim],
  ];
  const list = html("dl");
  for (const [name, value] of rows) {
    list.append(html("div", {}, html("dt", {}, name), html("dd", {}, value)));
  }
  room.replaceChildren(
    list,
    html("pre", { tabindex: 0, "aria-label": "The same in code" }, html("code", {}, codeOf(state))),
  );
}

/** The channels of a plan, and those of the settings where they are more. */
function channelsText(channels: number, state: State): string {
  if (!takesChannels(state) || state.channels <= channels) return `${channels}`;
  return `${channels} of the ${state.channels} that are set: NCCL takes fewer for few elements or one rank`;
}

function bytes(n: number): string {
  if (n < 1024) return `${n} B`;
  if (n < 1024 ** 2) return `${(n / 1024).toFixed(1)} KiB`;
  return `${(n / 1024 ** 2).toFixed(1)} MiB`;
}
