/**
 * A pinned plan: settings forced on NCCL, in one form for NCCL itself and for the simulated plan.
 *
 * NCCL gets them as environment variables, a configuration and a graph file; the simulated plan uses the same facts.
 * Both are checked here.
 */
import { assertOptions, invalid, type OptionKinds } from "../../api/option-kinds.ts";
import { type NcclSettings, resolveSettings } from "./rules.ts";

/** The pinned settings; a field that is left out is NCCL's choice. */
export interface NcclPin extends Omit<NcclSettings, "threads" | "ll128Threads"> {
  /**
   * Tree serves all-reduces alone, PAT reduce-scatters and all-gathers between hosts: other collectives keep NCCL's choice, as
   * under `NCCL_ALGO=allreduce:tree`.
   */
  readonly algorithm?: "Ring" | "Tree" | "PAT" | undefined;
  /** NCCL_PROTO. */
  readonly protocol?: "LL" | "LL128" | "Simple" | undefined;
  /** Exact number of channels: `minChannels` and `maxChannels` in one. */
  readonly channels?: number | undefined;
  /**
   * The ring of every channel, as the ranks in the order of its `next` pointers. Or NCCL's graphs, with the rings and trees of
   * every channel, as the text of a graph file (NCCL_GRAPH_FILE).
   */
  readonly rings?: readonly number[] | { readonly xml: string } | undefined;
}

const kinds: OptionKinds<NcclPin> = {
  ...{ algorithm: true, protocol: true, channels: true, minChannels: true, maxChannels: true },
  ...{ rings: true, buffSize: true, llBuffSize: true, ll128BuffSize: true },
};

const words = { algorithm: ["Ring", "Tree", "PAT"], protocol: ["LL", "LL128", "Simple"] } as const;

/** Checks a pin, and replaces `channels` by `minChannels` and `maxChannels`. */
export function resolvePin(pin: NcclPin = {}): Omit<NcclPin, "channels"> {
  assertOptions("plan of NCCL", pin, kinds, { path: "plan" });
  const { algorithm, protocol, channels, rings, ...settings } = pin;
  for (const field of ["algorithm", "protocol"] as const) {
    const found = pin[field];
    if (found === undefined || (words[field] as readonly string[]).includes(found)) continue;
    throw invalid(
      "plan of NCCL",
      `plan.${field}`,
      String(found),
      `one of ${words[field].join(", ")}`,
    );
  }
  if (rings !== undefined) checkRings(rings);
  const limits = { ...settings, ...limitsOf(pin) };
  resolveSettings(limits);
  return { ...limits, algorithm, protocol, rings };
}

/** Throws for a pinned ring that does not have all ranks of a world. */
export function assertRingSize({ rings }: NcclPin, ranks: number): void {
  if (rings === undefined || "xml" in rings || rings.length === ranks) return;
  throw invalid("plan of NCCL", "plan.rings", `${rings.length} ranks`, `all ${ranks} of the world`);
}

function limitsOf({ channels, minChannels, maxChannels }: NcclPin): NcclSettings {
  if (channels === undefined) return {};
  if (minChannels === undefined && maxChannels === undefined) {
    return { minChannels: channels, maxChannels: channels };
  }
  throw invalid(
    "plan of NCCL",
    "plan.channels",
    "it beside minChannels or maxChannels",
    "one or the other",
  );
}

function checkRings(rings: NonNullable<NcclPin["rings"]>): void {
  if (!Array.isArray(rings)) {
    if (typeof (rings as { readonly xml?: unknown }).xml === "string") return;
    throw invalid(
      "plan of NCCL",
      "plan.rings",
      typeof rings,
      "ranks in order, or { xml } with the text of a graph file",
    );
  }
  const sorted = [...rings].sort((a, b) => a - b);
  if (rings.length > 0 && sorted.every((rank, i) => rank === i)) return;
  throw invalid("plan of NCCL", "plan.rings", `[${rings.join(", ")}]`, "every rank from 0 on once");
}
