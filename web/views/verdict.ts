/** The verdict: which executors ran the call, and whether their results have the same bits. */
import type { Comparison, Outcome } from "../data/run.ts";
import { html } from "../dom.ts";
import type { State } from "../state.ts";

/** The result of an executor. */
export type Finding =
  | {
      readonly kind: "running" | "reference";
      readonly executor: string;
      readonly outcome?: Outcome;
    }
  | {
      readonly kind: "compared";
      readonly executor: string;
      readonly outcome: Outcome;
      readonly comparison: Comparison;
    }
  | { readonly kind: "missing" | "failed"; readonly executor: string; readonly reason: string };

/** Shows the findings: one sentence on all of them, then a line each. */
export function showVerdict(
  room: HTMLElement,
  findings: readonly Finding[],
  state: State,
  detail: ReadonlyMap<string, string>,
): void {
  const [headline, mood] = headlineOf(findings, state);
  const list = html("ul", { class: "findings" });
  for (const finding of findings) list.append(lineOf(finding, detail.get(finding.executor)));
  room.dataset["mood"] = mood;
  const mark = html("span", { class: "mood", "aria-hidden": "true" }, marks[mood]);
  room.replaceChildren(html("p", { class: "headline" }, mark, headline), list);
}

/** Shows a call without a result, be it refused or failed; the reason stands with the call. */
export function showRefusal(room: HTMLElement, { collective }: State): void {
  room.dataset["mood"] = "bad";
  const mark = html("span", { class: "mood", "aria-hidden": "true" }, marks.bad);
  const said = `This ${collective} has no result.`;
  room.replaceChildren(html("p", { class: "headline" }, mark, said));
}

/** Adapters that are no GPU: their times say nothing about one, so none is shown. */
const software = /swiftshader|llvmpipe|lavapipe/i;

const marks = { good: "✓", bad: "✗", busy: "…", plain: "·" } as const;
type Mood = keyof typeof marks;

function headlineOf(findings: readonly Finding[], { collective }: State): [string, Mood] {
  if (findings.some(({ kind }) => kind === "running")) return ["Running …", "busy"];
  const compared = findings.flatMap((each) => (each.kind === "compared" ? [each] : []));
  if (collective === "barrier") return ["No rank leaves before every rank has entered.", "good"];
  const bad = compared.find(({ comparison }) => comparison.equal !== comparison.of);
  if (bad !== undefined) {
    const { equal, of, first } = bad.comparison;
    const where =
      first === undefined ? "" : `, first at element ${first.element} of rank ${first.rank}`;
    return [
      `${bad.executor} differs: ${count(equal)} of ${count(of)} elements are equal${where}.`,
      "bad",
    ];
  }
  const failed = findings.find(({ kind }) => kind === "failed");
  if (failed !== undefined) return [`${failed.executor} failed at this call.`, "bad"];
  const [reference] = findings;
  if (compared.length === 0) {
    return [
      `Ran on ${reference?.executor ?? "nothing"} alone: nothing to compare it with.`,
      "plain",
    ];
  }
  const names = [reference?.executor ?? "", ...compared.map(({ executor }) => executor)];
  const last = names.pop();
  const of = compared[0]?.comparison.of ?? 0;
  return [`${names.join(", ")} and ${last} give the same bits, all ${count(of)} elements.`, "good"];
}

function lineOf(finding: Finding, detail: string | undefined): HTMLLIElement {
  const { executor } = finding;
  const name = html("strong", {}, executor);
  const said = ` ${saidOf(finding, detail)}`;
  const tail = detail === undefined ? [] : [html("span", { class: "quiet" }, ` · ${detail}`)];
  return html("li", { "data-executor": executor, "data-kind": finding.kind }, name, said, ...tail);
}

function saidOf(finding: Finding, detail: string | undefined): string {
  switch (finding.kind) {
    case "running":
      return "is running";
    case "failed":
      return `failed: ${finding.reason}`;
    case "missing":
      return `is not available: ${finding.reason}`;
    case "reference":
      return `ran in ${millis(finding.outcome)}`;
    case "compared": {
      const { equal, of } = finding.comparison;
      const how = software.test(detail ?? "") ? "ran" : `ran in ${millis(finding.outcome)}`;
      return `${how}, ${count(equal)} of ${count(of)} elements identical`;
    }
  }
}

function millis(outcome: Outcome | undefined): string {
  const { milliseconds = 0 } = outcome ?? {};
  return `${milliseconds < 10 ? milliseconds.toFixed(1) : milliseconds.toFixed(0)} ms`;
}

function count(n: number): string {
  return n.toLocaleString("en");
}
