/**
 * A pinned plan: settings forced on NCCL, in one form for NCCL itself and for the simulated plan.
 *
 * NCCL gets them as environment variables, a configuration and a graph file; the simulated plan uses the same facts.
 * Both are checked here.
 */
import {
  assertOptions,
  invalid,
  listText,
  type OptionKinds,
  textOf,
} from "../../api/option-kinds.ts";
import { type NcclVariables, ncclEnvironment, settingOf } from "./environment.ts";
import { channelLimit, type NcclSettings, resolveSettings } from "./rules.ts";
import { isRing } from "./topology.ts";

/** The pinned settings; a field that is left out is NCCL's choice. */
export interface NcclPin extends NcclSettings {
  /**
   * Tree serves all-reduces alone, PAT reduce-scatters and all-gathers between hosts: other collectives keep NCCL's choice, as
   * under `NCCL_ALGO=allreduce:tree`.
   */
  readonly algorithm?: "Ring" | "Tree" | "PAT" | undefined;
  /** NCCL_PROTO. */
  readonly protocol?: "LL" | "LL128" | "Simple" | undefined;
  /**
   * NCCL's environment variables, as NCCL reads them: `{ NCCL_ALGO: "ring;allreduce:tree,ring" }`. No other field may set the
   * same.
   */
  readonly variables?: NcclVariables | undefined;
  /** Exact number of channels: `minChannels` and `maxChannels` in one. */
  readonly channels?: number | undefined;
  /**
   * The ring of every channel, as the ranks in the order of its `next` pointers. Or NCCL's graphs, with the rings and trees of
   * every channel, as the text of a graph file (NCCL_GRAPH_FILE).
   */
  readonly rings?: readonly number[] | { readonly xml: string } | undefined;
}

const subject = "plan of NCCL";

const kinds: OptionKinds<NcclPin> = {
  ...{ algorithm: true, protocol: true, channels: true, minChannels: true, maxChannels: true },
  ...{ rings: true, buffSize: true, llBuffSize: true, ll128BuffSize: true },
  ...{ threads: true, ll128Threads: true, variables: "object" },
};

const words = { algorithm: ["Ring", "Tree", "PAT"], protocol: ["LL", "LL128", "Simple"] } as const;

/** Values of NCCL_ALGO. A list without an algorithm for a collective fails its calls, so some name theirs. */
const algorithmLists = {
  Ring: "Ring",
  Tree: "allreduce:tree",
  PAT: "reducescatter:pat;allgather:pat",
} as const;

/** A pin in the form that NCCL takes: numbers as settings, everything else as variables. It is itself a pin. */
export interface ResolvedPin extends NcclSettings {
  readonly rings?: NcclPin["rings"];
  /** Variables that give no number; left out if there are none. */
  readonly variables?: NcclVariables;
}

/** Checks a pin, and brings it to one form. */
export function resolvePin(pin: NcclPin = {}): ResolvedPin {
  assertOptions(subject, pin, kinds, { path: "plan" });
  const { algorithm, protocol, channels, rings, variables: given = {}, ...settings } = pin;
  for (const field of ["algorithm", "protocol"] as const) {
    const found = pin[field];
    if (found === undefined || (words[field] as readonly string[]).includes(found)) continue;
    throw invalid(subject, `plan.${field}`, textOf(found), `one of ${words[field].join(", ")}`);
  }
  if (rings !== undefined) checkRings(rings);
  const environment = ncclEnvironment(given);
  const variables = {
    ...Object.fromEntries(Object.entries(given).filter(([name]) => settingOf(name) === undefined)),
    ...(algorithm !== undefined && { NCCL_ALGO: algorithmLists[algorithm] }),
    ...(protocol !== undefined && { NCCL_PROTO: protocol }),
  };
  const limits = { ...settings, ...limitsOf(pin), ...environment.settings };
  assertOnce(pin, environment.settings);
  resolveSettings(limits, "plan");
  return {
    ...limits,
    ...(rings !== undefined && { rings }),
    ...(Object.keys(variables).length > 0 && { variables }),
  };
}

/** Throws where a variable and another field set the same. */
function assertOnce(pin: NcclPin, byVariables: NcclSettings): void {
  const { algorithm, protocol, variables = {} } = pin;
  const limits = pin.channels === undefined ? {} : { minChannels: true, maxChannels: true };
  const names: readonly (readonly [string, unknown])[] = [
    ["algorithm", algorithm !== undefined && variables["NCCL_ALGO"] !== undefined],
    ["protocol", protocol !== undefined && variables["NCCL_PROTO"] !== undefined],
    ...Object.keys(byVariables).map((field) => {
      return [field, pin[field as keyof NcclPin] ?? limits[field as keyof typeof limits]] as const;
    }),
  ];
  const twice = names.find(([, isSet]) => isSet !== undefined && isSet !== false);
  if (twice === undefined) return;
  const needed = "it once: as a field or as a variable";
  throw invalid(subject, `plan.${twice[0]}`, "it beside a variable of NCCL", needed);
}

/** Throws for a pinned ring that does not have all ranks of a world. */
export function assertRingSize({ rings }: NcclPin, ranks: number): void {
  if (rings === undefined || "xml" in rings || rings.length === ranks) return;
  throw invalid(subject, "plan.rings", `${rings.length} ranks`, `all ${ranks} of the world`);
}

function limitsOf({ channels, minChannels, maxChannels }: NcclPin): NcclSettings {
  if (channels === undefined) return {};
  if (minChannels !== undefined || maxChannels !== undefined) {
    throw invalid(
      subject,
      "plan.channels",
      "it beside minChannels or maxChannels",
      "one or the other",
    );
  }
  if (Number.isInteger(channels) && channels >= 1 && channels <= channelLimit) {
    return { minChannels: channels, maxChannels: channels };
  }
  throw invalid(subject, "plan.channels", textOf(channels), `1..${channelLimit}`);
}

function checkRings(rings: NonNullable<NcclPin["rings"]>): void {
  if (!Array.isArray(rings)) {
    if (typeof (rings as { readonly xml?: unknown } | null)?.xml === "string") return;
    throw invalid(
      subject,
      "plan.rings",
      textOf(rings),
      "ranks in order, or { xml } with the text of a graph file",
    );
  }
  if (isRing(rings)) return;
  throw invalid(subject, "plan.rings", listText(rings), "every rank from 0 on once");
}
