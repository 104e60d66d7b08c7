/** The output of `golden check`. */
import type { CheckReport, Mismatch } from "../golden/check.ts";
import type { GoldenPlan, GoldenRecord } from "../golden/format.ts";
import type { GoldenFile } from "../golden/read.ts";

/** Everything that was found; the last line counts. */
export function reportText(
  path: string,
  backend: string,
  { head, cases, lines, unknownFields }: GoldenFile<GoldenRecord>,
  report: CheckReport,
  show: number,
): string {
  const { identical, mismatches, planDifferences } = report;
  const text = [
    `# ${path}: ${cases.length} calls of ${head.library} on ${head.topology}, replayed on ${backend}`,
  ];
  if (unknownFields.length > 0) text.push(`# not looked at: ${unknownFields.join(", ")}`);
  for (const mismatch of mismatches.slice(0, show)) {
    const line = lines[mismatch.index] ?? 0;
    text.push(...mismatchLines(mismatch, line, cases[mismatch.index]?.count ?? 0));
  }
  if (mismatches.length > show) text.push(`# ${mismatches.length - show} more are not identical`);
  for (const line of refusalLines(report)) text.push(line);
  if (report.plans > 0) {
    const agreeing = report.plans - planDifferences.length;
    text.push(`# plans: ${agreeing} of ${report.plans} as ${head.library} reported them`);
    for (const difference of planDifferences.slice(0, show)) {
      const { plan, recordedPlan } = difference;
      text.push(`#   ${difference.case}: ${planText(plan)}; reported: ${planText(recordedPlan)}`);
    }
  }
  text.push(`golden: ${identical} of ${cases.length} identical`, "");
  return text.join("\n");
}

function mismatchLines(mismatch: Mismatch, line: number, count: number): string[] {
  const { element, wantHash, haveHash, plan, recordedPlan } = mismatch;
  const reported = recordedPlan === undefined ? "" : `; reported: ${planText(recordedPlan)}`;
  const where =
    element === undefined
      ? `unknown: the file holds a hash of all ${count}, not their bits`
      : `${element.element} of ${element.length}`;
  const bits = (text: string | undefined, hash: string): string =>
    text === undefined ? `hash ${hash}` : `${text} (hash ${hash})`;
  return [
    `# not identical: ${mismatch.case}, line ${line}`,
    `#   rank     ${mismatch.rank}`,
    `#   element  ${where}`,
    `#   want     ${bits(element?.want, wantHash)}`,
    `#   have     ${bits(element?.have, haveHash)}`,
    `#   plan     ${planText(plan)}${reported}`,
  ];
}

/** One line a reason: many cases need the same. */
function refusalLines({ refusals }: CheckReport): string[] {
  const counts = new Map<string, number>();
  for (const { reason } of refusals) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  return [...counts].map(([reason, count]) => {
    const first = refusals.find((each) => each.reason === reason)?.case;
    return `# ${count} could not be replayed, first ${first}: ${reason}`;
  });
}

function planText(plan: GoldenPlan | undefined): string {
  if (plan === undefined) return "unknown";
  const { algorithm, protocol, channels } = plan;
  return `${algorithm} ${protocol} over ${channels} ${channels === 1 ? "channel" : "channels"}`;
}
