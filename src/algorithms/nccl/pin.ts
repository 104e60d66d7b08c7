/**
 * A pinned plan: settings forced on NCCL, in one form for NCCL itself and for the simulated plan.
 *
 * NCCL gets them as environment variables, a configuration and a graph file; the simulated plan uses the same facts.
 * Both are checked here.
 */
import { assertOptions, invalid, type OptionKinds, textOf } from "../../api/option-kinds.ts";
import type { ChannelPaths, Topology } from "./topology.ts";

/** The pinned settings; a field that is left out is NCCL's choice. */
export interface NcclPin extends NcclSettings {
  /** Tree exists for all-reduces alone: other collectives keep NCCL's choice, as under `NCCL_ALGO=allreduce:tree`. */
  readonly algorithm?: "Ring" | "Tree" | undefined;
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

const words = { algorithm: ["Ring", "Tree"], protocol: ["LL", "LL128", "Simple"] } as const;

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

/** Settings of NCCL that change a plan, named as its environment variables; a field that is left out has NCCL's default. */
export interface NcclSettings {
  /** NCCL_MAX_CTAS, by its older name NCCL_MAX_NCHANNELS. */
  readonly maxChannels?: number | undefined;
  /** NCCL_MIN_CTAS, by its older name NCCL_MIN_NCHANNELS. */
  readonly minChannels?: number | undefined;
  /** NCCL_BUFFSIZE: bytes of the buffers of protocol Simple. */
  readonly buffSize?: number | undefined;
  /** NCCL_LL_BUFFSIZE. */
  readonly llBuffSize?: number | undefined;
  /** NCCL_LL128_BUFFSIZE. */
  readonly ll128BuffSize?: number | undefined;
}

/** Every setting with its value. */
export type ResolvedSettings = { readonly [K in keyof Required<NcclSettings>]: number };

/** NCCL's limit of channels of a communicator. */
export const channelLimit = 64;

const defaults: ResolvedSettings = {
  maxChannels: channelLimit,
  minChannels: 1,
  buffSize: 4_194_304,
  llBuffSize: 524_288,
  ll128BuffSize: 4_915_200,
};

/** Fills in NCCL's defaults, and checks numbers of channels and bytes. */
export function resolveSettings(settings: NcclSettings = {}): ResolvedSettings {
  const { maxChannels, minChannels, buffSize, llBuffSize, ll128BuffSize } = settings;
  const resolved = {
    maxChannels: checked("maxChannels", maxChannels, channelLimit),
    minChannels: checked("minChannels", minChannels, channelLimit),
    buffSize: checked("buffSize", buffSize),
    llBuffSize: checked("llBuffSize", llBuffSize),
    ll128BuffSize: checked("ll128BuffSize", ll128BuffSize),
  };
  if (resolved.minChannels > resolved.maxChannels) {
    const needed = `at most maxChannels, ${resolved.maxChannels}`;
    throw invalid("plan of NCCL", "settings.minChannels", textOf(resolved.minChannels), needed);
  }
  return resolved;
}

/** The channels of a communicator: the first ones up to the limit; beyond their number they repeat from the first. */
export function channelsOf(
  { channels }: Topology,
  { minChannels, maxChannels }: ResolvedSettings,
): readonly ChannelPaths[] {
  const channelCount = Math.max(minChannels, Math.min(maxChannels, channels.length));
  return Array.from(
    { length: channelCount },
    (_, c) => channels[c % channels.length] as ChannelPaths,
  );
}

function checked(
  field: keyof NcclSettings,
  value: number | undefined,
  most = Number.MAX_SAFE_INTEGER,
): number {
  if (value === undefined) return defaults[field];
  if (Number.isInteger(value) && value >= 1 && value <= most) return value;
  const needs = most === channelLimit ? `1..${most}` : "a number of bytes";
  throw invalid("plan of NCCL", `settings.${field}`, textOf(value), needs);
}
