/**
 * The rules of NCCL: algorithms and protocols with their constants, known versions, and settings with defaults.
 *
 * NCCL's rules change between versions, and rules of one version say nothing about another. Everything in this folder was read
 * from 2.28.9 and checked against its recorded results. So that is the only known version; `2.28` is short for it. Versions
 * from 2.29.2 on cut the range differently.
 */

import { UnsupportedError } from "../../api/errors.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";

/** Algorithms without in-network reduction, in the order NCCL tries them. */
export const algorithms = ["Tree", "Ring", "PAT"] as const;

/** Protocols, in the order NCCL tries them. */
export const protocols = ["LL", "LL128", "Simple"] as const;

/** Path of values between ranks. */
export type NcclAlgorithm = (typeof algorithms)[number];

/** Layout of a message in the channel's buffer. */
export type NcclProtocol = (typeof protocols)[number];

/** Collectives with known plans: those that Ring serves. */
export type NcclCollective = "allReduce" | "reduceScatter" | "reduce" | "allGather" | "broadcast";

/** Collectives of the algorithms that do not serve all. */
const served: { readonly [A in NcclAlgorithm]?: readonly string[] } = {
  Tree: ["allReduce"],
  PAT: ["reduceScatter", "allGather"],
};

/** True for a collective that an algorithm serves. */
export function algorithmServes(algorithm: NcclAlgorithm, collective: string): boolean {
  return served[algorithm]?.includes(collective) ?? true;
}

/** Messages that fit into a channel's buffer. */
export const bufferSteps = 8;

/** Chunk sizes are multiples of these bytes. */
export const grains: { readonly [P in NcclProtocol]: number } = {
  LL: 16,
  LL128: 1920,
  Simple: 512,
};

/** Names of the known version. */
export const ncclVersions = ["2.28", "2.28.9"] as const;

/** Rules that are known to differ between versions. */
export interface VersionRules {
  readonly version: string;
  /** Bytes of traffic that make a channel worthwhile; 32 KiB from 2.29.2 on. */
  readonly minimumTraffic: number;
}

const rules28: VersionRules = { version: "2.28.9", minimumTraffic: 16_384 };

/** The rules of a version. Throws for an unknown one. */
export function rulesOf(version: string): VersionRules {
  if ((ncclVersions as readonly string[]).includes(version)) return rules28;
  throw new UnsupportedError(
    {
      headline: `the plan of NCCL ${version}: its rules are not known here`,
      hint: `known versions: ${ncclVersions.join(", ")}; plans of other versions are not guessed`,
    },
    { field: "version" },
  );
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
