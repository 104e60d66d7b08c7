/** The plan in a few facts. */
import type { Explanation } from "twinccl";
import { html } from "../dom.ts";
import type { State } from "../state.ts";

/** Shows what `explain` says about the call, and the line of code that makes it. */
export function showFacts(
  room: HTMLElement,
  explanation: Explanation,
  summary: string,
  code: string,
): void {
  const { algorithm, channels, steps, sentBytes, predictedNs, claim } = explanation;
  const rows: [string, string][] = [
    ["algorithm", algorithm],
    ["in a sentence", summary],
    ["channels", `${channels}`],
    ["steps one after another", `${steps}`],
    ["sent by the busiest rank", bytes(sentBytes)],
    [
      "predicted",
      predictedNs >= 1000 ? `${(predictedNs / 1000).toFixed(3)} µs` : `${predictedNs} ns`,
    ],
    ["about NCCL's bits", claim],
  ];
  const list = html("dl");
  for (const [name, value] of rows) {
    list.append(html("div", {}, html("dt", {}, name), html("dd", {}, value)));
  }
  room.replaceChildren(
    list,
    html("pre", { tabindex: 0, "aria-label": "The same in code" }, html("code", {}, code)),
  );
}

function bytes(n: number): string {
  if (n < 1024) return `${n} B`;
  if (n < 1024 ** 2) return `${(n / 1024).toFixed(1)} KiB`;
  return `${(n / 1024 ** 2).toFixed(1)} MiB`;
}

/** The call as a program would make it. */
export function codeOf(state: State, options: object): string {
  const { collective, dtype, op, scalar, ranks, count, root } = state;
  const args = argumentsOf(collective, op === "preMul" ? `{ preMul: ${scalar} }` : `"${op}"`, root);
  const sizes: Record<string, string> = {
    allReduce: `${count}`,
    reduce: `${count}`,
    broadcast: `${count}`,
  };
  const length = sizes[collective] ?? "…";
  const buffers =
    collective === "barrier" ? [] : [`  const send = comm.alloc("${dtype}", ${length});`, "  // …"];
  return [
    `const backend = sim(${literal(options)});`,
    `const world = await createWorld({ backend, size: ${ranks} });`,
    "await world.run(async (comm) => {",
    ...buffers,
    `  await comm.${collective}(${args});`,
    "});",
  ].join("\n");
}

function argumentsOf(collective: string, op: string, root: number): string {
  const rooted = ["reduce", "broadcast", "gather", "scatter"].includes(collective);
  const reduces = collective.toLowerCase().includes("reduce");
  if (collective === "barrier") return "";
  const counts: Record<string, string> = {
    allGatherv: "recvCounts",
    reduceScatterv: "sendCounts",
    allToAllv: "sendCounts, recvCounts",
  };
  const parts = [
    "send",
    "recv",
    ...(reduces ? [`op: ${op}`] : []),
    ...(rooted ? [`root: ${root}`] : []),
    ...(counts[collective] === undefined ? [] : [counts[collective]]),
  ];
  return `{ ${parts.join(", ")} }`;
}

function literal(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const entries = Object.entries(value).filter(([, each]) => each !== undefined);
  if (entries.length === 0) return "{}";
  return `{ ${entries.map(([key, each]) => `${key}: ${literal(each)}`).join(", ")} }`;
}
