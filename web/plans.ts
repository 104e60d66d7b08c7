/** The ways a call can be done, as the page names them: the catalogue's algorithms, and NCCL's plans. */
import type { SpecifiedCollective } from "twinccl";
import { type AlgorithmChoice, algorithmsOf } from "twinccl/algorithms";
import type { NcclPin, SimOptions } from "twinccl/sim";

/** A call, as far as it decides the plan. */
export interface PlannedCall {
  readonly collective: SpecifiedCollective;
  readonly plan: string;
  readonly ranks: number;
  /** Channels of NCCL's plan; 0 for its own choice. */
  readonly channels: number;
  /** Gb/s of the sockets between hosts. */
  readonly network: number;
}

/** One way, for a menu. */
export interface PlanChoice {
  readonly id: string;
  readonly label: string;
  readonly group: "Catalogue" | "NCCL 2.28" | "NCCL 2.28 across hosts";
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

/** Gb/s between the hosts of the machine with a name. */
export const namedNetwork = 10;

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
  if (!planned.includes(collective)) return choices;
  if (ranks <= ncclRanks) choices.push(...nodeChoices(collective));
  choices.push(...hostChoices(collective));
  return choices;
}

/** Plans of one node. */
function nodeChoices(collective: SpecifiedCollective): PlanChoice[] {
  const group = "NCCL 2.28";
  const algorithms = collective === "allReduce" ? ["Ring", "Tree"] : ["Ring"];
  const demands = algorithms.flatMap((algorithm) =>
    protocols.map((protocol) => ({
      ...({ id: `nccl-${algorithm}-${protocol}`.toLowerCase(), group } as const),
      label: `NCCL ${algorithm} ${protocol}`,
    })),
  );
  const ownMemory = { id: "nccl-symmetric", label: "NCCL in symmetric memory", group } as const;
  return [
    { id: "nccl", label: "NCCL’s own choice", group },
    ...demands,
    ...(symmetric.includes(collective) ? [ownMemory] : []),
  ];
}

/** Plans of one GPU on each host. */
function hostChoices(collective: SpecifiedCollective): PlanChoice[] {
  const group = "NCCL 2.28 across hosts";
  const demands = ["Ring LL", "Ring Simple"];
  if (collective === "allReduce") demands.push("Tree LL", "Tree Simple");
  // NCCL has no PAT for averages of a reduce-scatter, so there it is left to the choice.
  if (collective === "allGather") demands.push("PAT Simple");
  return [
    { id: "hosts", label: "NCCL’s own choice across hosts", group },
    ...demands.map((demand): PlanChoice => {
      const id = `hosts ${demand}`.toLowerCase().replaceAll(" ", "-");
      return { id, label: `NCCL ${demand} across hosts`, group };
    }),
  ];
}

/** Their names. */
export function planIds(collective: SpecifiedCollective, ranks: number): string[] {
  return planChoices(collective, ranks).map(({ id }) => id);
}

/** True for a plan of NCCL. */
function isNccl(call: PlannedCall): boolean {
  return call.plan.startsWith("nccl") || isAcrossHosts(call);
}

/** True for a plan of ranks on hosts of their own. */
export function isAcrossHosts({ plan }: PlannedCall): boolean {
  return plan.startsWith("hosts");
}

/** True for a plan whose number of channels is a setting. */
export function takesChannels(call: PlannedCall): boolean {
  return isNccl(call) && !isSymmetric(call);
}

/** True when a call's buffers lie in symmetric memory. */
export function isSymmetric({ plan }: PlannedCall): boolean {
  return plan === "nccl-symmetric";
}

/** The options of `sim` and `plannersOf` about the plan. */
export function planOptions(
  call: PlannedCall,
): Pick<SimOptions, "algorithms" | "like" | "plan" | "topology"> {
  const { collective, plan, channels } = call;
  if (!isNccl(call)) return { algorithms: { [collective]: plan } as AlgorithmChoice };
  const [, algorithm, protocol] = plan.split("-");
  const named = <T extends string>(names: readonly T[], text: string | undefined): T | undefined =>
    names.find((name) => name.toLowerCase() === text);
  const pin: NcclPin = {
    algorithm: named(["Ring", "Tree", "PAT"], algorithm),
    protocol: named(protocols, protocol),
    channels: channels === 0 ? undefined : channels,
  };
  return { like: "nccl-2.28", topology: topologyOf(call), plan: pin };
}

/** The machine by name, or hosts with another network. */
function topologyOf(call: PlannedCall): NonNullable<SimOptions["topology"]> {
  if (!isAcrossHosts(call)) return "h200x8";
  const { network, ranks: hosts } = call;
  if (network === namedNetwork) return "h200-hosts";
  return { hosts, gpusPerHost: 1, network: { kind: "socket", gigabitsPerSecond: network } };
}
