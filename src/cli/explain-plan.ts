/** NCCL's plans beyond an explanation: one element hop by hop, and the differences of two plans of a call. */
import {
  assertRingSize,
  differenceText,
  differing,
  elementHops,
  elementPlan,
  elementText,
  type NcclCollective,
  type NcclPlan,
  ncclPlan,
  programName,
  resolvePin,
  topologies,
  withRing,
} from "../algorithms/index.ts";
import type { Question } from "../api/index.ts";
import { UsageError } from "./context.ts";
import type { Library, NcclChoice } from "./nccl-settings.ts";

const planned: readonly string[] = [
  "allReduce",
  "reduce",
  "reduceScatter",
  "broadcast",
  "allGather",
] satisfies NcclCollective[];

/** True for collectives with a known plan; of the others the catalogue's stands in. */
export function isPlanned(collective: string): boolean {
  return planned.includes(collective);
}

/** The plan that `sim({ like, plan })` follows for a call. */
export function planOf(
  { collective, dtype, op, count = 0, root }: Question,
  ranks: number,
  library: Library,
  { setup, symmetric }: NcclChoice,
): NcclPlan {
  if (!isPlanned(collective) || dtype === undefined) {
    throw new UsageError(
      `--like ${library}: NCCL's plan is known of ${planned.join(", ")}, not of ${collective}`,
    );
  }
  const { algorithm, protocol, rings, ...settings } = resolvePin(setup);
  assertRingSize({ rings }, ranks);
  const found = topologies.h200x8(ranks);
  const isTreeless = algorithm === "Tree" && collective !== "allReduce";
  return ncclPlan({
    version: library.slice("nccl-".length),
    topology: rings === undefined || "xml" in rings ? found : withRing(found, rings),
    collective: collective as NcclCollective,
    dtype,
    op,
    count,
    root,
    settings,
    forced: isTreeless ? { protocol } : { algorithm, protocol },
    symmetric: symmetric ? { send: 0, recv: 0 } : undefined,
  });
}

/** An element of a rank's output: block and element of the plan. */
export interface Target {
  readonly block: number;
  readonly element: number;
}

/** The block that holds element `element` of the output of `rank`. */
export function targetOf(plan: NcclPlan, rank: number, element: number): Target {
  const { collective, count, ranks, root } = plan;
  if (collective === "reduce" && rank !== root) {
    throw new UsageError(`--rank: found ${rank}, but only the root, rank ${root}, has an output`);
  }
  const blocks = collective === "allGather" ? ranks : 1;
  if (element >= blocks * count) {
    const range = count === 0 ? "the output is empty" : `needs 0..${blocks * count - 1}`;
    throw new UsageError(`--element: found ${element}, ${range}`);
  }
  if (collective === "reduceScatter") return { block: rank, element };
  return { block: Math.floor(element / count), element: element % count };
}

/** One element: where it lies, how it is folded, and what every hop rounds. */
export function elementLines(plan: NcclPlan, target: Target, rank: number): string {
  const { piece } = elementPlan(plan, target.element, target.block);
  const { block, channel, loop, chunk, offset, length } = piece;
  const what = `${plan.collective} ${plan.dtype}[${plan.count}]`;
  const own = plan.collective === "allGather" ? ` of block ${block}` : "";
  const channels = `channel ${channel} of ${plan.channels}, loop ${loop}, chunk ${chunk}`;
  const where =
    plan.algorithm === "Copy"
      ? "one rank alone"
      : plan.algorithm === "Symmetric"
        ? `stretch ${chunk}`
        : channels;
  const [, ...defects] = elementText(plan, target.element, target.block).split("; NCCL ");
  return [
    `element ${target.element}${own} of ${what} on rank ${rank}: ${planName(plan)}`,
    `  ${where}: elements ${offset}..${offset + length - 1}`,
    ...elementHops(plan, target.element, target.block).map((hop, i) => `  ${i + 1}  ${hop}`),
    ...defects.map((defect) => `  NCCL ${defect}`),
    "",
  ].join("\n");
}

/** The same as data. */
export function elementDocument(plan: NcclPlan, { block, element }: Target, rank: number): object {
  const { piece, rounding, defined } = elementPlan(plan, element, block);
  const { algorithm, protocol, channels } = plan;
  const hops = elementHops(plan, element, block);
  return { element, rank, algorithm, protocol, channels, ...piece, rounding, hops, defined };
}

/** Number of elements that two plans of a call fold or round differently, and the first of them under both. */
export function againstLines(plan: NcclPlan, other: NcclPlan): string {
  const difference = differing(plan, other);
  const { first } = difference;
  const lines = [
    `plan     ${planName(plan)}`,
    `against  ${planName(other)}`,
    differenceText(difference),
  ];
  if (first !== undefined) {
    const told = ({ channels }: NcclPlan, text: string): string =>
      text.replace(/^element \d+: /, "").replace(/^(channel \d+),/, `$1 of ${channels},`);
    for (const [name, each] of [
      ["plan   ", plan],
      ["against", other],
    ] as const) {
      lines.push(`  ${name}  ${told(each, elementText(each, first.element, first.block))}`);
    }
  }
  return `${lines.join("\n")}\n`;
}

function planName(plan: NcclPlan): string {
  const { channels, version, topology } = plan;
  const unit = plan.algorithm === "Symmetric" ? "block" : "channel";
  const over =
    plan.algorithm === "Copy" ? "" : ` over ${channels} ${unit}${channels === 1 ? "" : "s"}`;
  return `${programName(plan)}${over}, as NCCL ${version} on ${topology}`;
}
