/** The ways a call can be done, as the page names them: the catalogue's algorithms, and NCCL's plans. */
import type { SpecifiedCollective } from "twinccl";
import { type AlgorithmChoice, algorithmsOf } from "twinccl/algorithms";
import type { NcclPin, SimOptions } from "twinccl/sim";
import type { State } from "./state.ts";

/** One way, for a menu. */
export interface PlanChoice {
  readonly id: string;
  readonly label: string;
  readonly group: "Catalogue" | "NCCL 2.28";
}

/** Collectives with a plan of NCCL's own; the others it sends block by block, as the catalogue does. */
const planned: readonly SpecifiedCollective[] = [
  "allReduce",
  "reduce",
  "reduceScatter",
  "broadcast",
  "allGather",
];

/** Those that have kernels for symmetric memory. */
const symmetric: readonly SpecifiedCollective[] = ["allReduce", "reduceScatter", "allGather"];

/** GPUs of the machine with known plans. */
const ncclRanks = 8;

const protocols = ["LL", "LL128", "Simple"] as const;

/** The plans of a collective for a number of ranks, the catalogue's first. */
export function planChoices(collective: SpecifiedCollective, ranks: number): PlanChoice[] {
  const choices: PlanChoice[] = algorithmsOf(collective).map(({ name }) => ({
    id: name,
    label: name.replaceAll("-", " "),
    group: "Catalogue",
  }));
  if (!planned.includes(collective) || ranks > ncclRanks) return choices;
  const nccl = (id: string, label: string): void =>
    void choices.push({ id, label, group: "NCCL 2.28" });
  nccl("nccl", "NCCL’s own choice");
  for (const algorithm of collective === "allReduce" ? ["Ring", "Tree"] : ["Ring"]) {
    for (const protocol of protocols) {
      nccl(`nccl-${algorithm}-${protocol}`.toLowerCase(), `NCCL ${algorithm} ${protocol}`);
    }
  }
  if (symmetric.includes(collective)) nccl("nccl-symmetric", "NCCL in symmetric memory");
  return choices;
}

/** Their names. */
export function planIds(collective: SpecifiedCollective, ranks: number): string[] {
  return planChoices(collective, ranks).map(({ id }) => id);
}

/** True for a plan of NCCL. */
export function isNccl({ plan }: State): boolean {
  return plan.startsWith("nccl");
}

/** True when a call's buffers lie in symmetric memory. */
export function isSymmetric({ plan }: State): boolean {
  return plan === "nccl-symmetric";
}

/** The options of `sim` and `plannersOf` about the plan. */
export function planOptions(state: State): Pick<SimOptions, "algorithms" | "like" | "plan"> {
  const { collective, plan, channels } = state;
  if (!isNccl(state)) return { algorithms: { [collective]: plan } as AlgorithmChoice };
  const [, algorithm, protocol] = plan.split("-");
  const named = <T extends string>(names: readonly T[], text: string | undefined): T | undefined =>
    names.find((name) => name.toLowerCase() === text);
  const pin: NcclPin = {
    algorithm: named(["Ring", "Tree"], algorithm),
    protocol: named(protocols, protocol),
    channels: channels === 0 ? undefined : channels,
  };
  return { like: "nccl-2.28", plan: pin };
}
