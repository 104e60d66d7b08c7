/** The settings of NCCL that change a plan, as its environment variables name them. */
import { InvalidArgumentError } from "../../api/errors.ts";
import type { ChannelPaths, Topology } from "./topology.ts";

/** What may be set; what is left out has NCCL's default. */
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

/** The most channels any communicator has. */
export const mostChannels = 64;

const defaults: ResolvedSettings = {
  maxChannels: mostChannels,
  minChannels: 1,
  buffSize: 4_194_304,
  llBuffSize: 524_288,
  ll128BuffSize: 4_915_200,
};

/** Fills in NCCL's defaults and refuses what is no number of channels or bytes. */
export function resolveSettings(settings: NcclSettings = {}): ResolvedSettings {
  const { maxChannels, minChannels, buffSize, llBuffSize, ll128BuffSize } = settings;
  const resolved = {
    maxChannels: checked("maxChannels", maxChannels, mostChannels),
    minChannels: checked("minChannels", minChannels, mostChannels),
    buffSize: checked("buffSize", buffSize),
    llBuffSize: checked("llBuffSize", llBuffSize),
    ll128BuffSize: checked("ll128BuffSize", ll128BuffSize),
  };
  if (resolved.minChannels > resolved.maxChannels) {
    const headline = `settings: minChannels ${resolved.minChannels} is above maxChannels ${resolved.maxChannels}`;
    throw new InvalidArgumentError({ headline }, { field: "settings.minChannels" });
  }
  return resolved;
}

/** The channels of a communicator: the first ones up to the limit, or all and then again from the first. */
export function channelsOf(
  { channels }: Topology,
  { minChannels, maxChannels }: ResolvedSettings,
): readonly ChannelPaths[] {
  const wanted = Math.max(minChannels, Math.min(maxChannels, channels.length));
  return Array.from({ length: wanted }, (_, c) => channels[c % channels.length] as ChannelPaths);
}

function checked(
  field: keyof NcclSettings,
  value: number | undefined,
  most = Number.MAX_SAFE_INTEGER,
): number {
  if (value === undefined) return defaults[field];
  if (Number.isInteger(value) && value >= 1 && value <= most) return value;
  const needs = most === mostChannels ? `1..${most}` : "a number of bytes";
  const headline = `settings: ${field}: found ${value}, needs ${needs}`;
  throw new InvalidArgumentError({ headline }, { field: `settings.${field}` });
}
