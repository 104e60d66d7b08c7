/**
 * The rules of NCCL: algorithms and protocols with their constants, known versions, and settings with defaults.
 *
 * Everything in this folder was read from 2.28.9 and checked against its recorded results. Between 2.27 and 2.30 the order of
 * folds and the choice stay as they are for Ring, Tree and PAT on Hopper; from 2.29.2 on the range is cut differently. That was
 * read in the sources, and not recorded. Symmetric kernels are known for 2.28 alone.
 */

import { UnsupportedError } from "../../api/errors.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import { assertArgument } from "../arguments.ts";

/** Algorithms without in-network reduction, in the order NCCL tries them. */
export const algorithms = ["Tree", "Ring", "PAT"] as const;

/** Protocols, in the order NCCL tries them. */
export const protocols = ["LL", "LL128", "Simple"] as const;

/** Path of values between ranks. */
export type NcclAlgorithm = (typeof algorithms)[number];

/** Layout of a message in the channel's buffer. */
export type NcclProtocol = (typeof protocols)[number];

/** Collectives with known plans: those that Ring serves. */
export const ncclCollectives = [
  "allReduce",
  "reduceScatter",
  "reduce",
  "allGather",
  "broadcast",
] as const;

/** One of them. */
export type NcclCollective = (typeof ncclCollectives)[number];

/** True for a collective with known plans. */
export function isNcclCollective(collective: string): collective is NcclCollective {
  return ncclCollectives.some((each) => each === collective);
}

/** Blocks that are cut alike: one for each rank of a reduce-scatter and an all-gather, otherwise one. */
export function blocksOf(collective: NcclCollective, ranks: number): number {
  return collective === "reduceScatter" || collective === "allGather" ? ranks : 1;
}

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

/** The evidence for plans: recorded results of NCCL, or the reading of its source alone. */
export type Evidence = "measured" | "source";

/** Rules that differ between versions. */
export interface VersionRules {
  readonly version: string;
  /** Bytes of traffic that make a channel worthwhile. */
  readonly minimumTraffic: number;
  /** Bytes that the traffic of a channel is a multiple of. */
  readonly trafficStep: number;
  readonly evidence: Evidence;
  /** True if the choice among symmetric kernels is known. */
  readonly knowsSymmetric: boolean;
  /** True if symmetric kernels load values of 1 and 2 bytes wrongly at addresses that are no multiple of 4. */
  readonly misloads: boolean;
  /** True if low-latency symmetric kernels keep blocks that are no multiple of 8 bytes whole packs apart. */
  readonly misplaces: boolean;
}

/** The recorded version. */
const measuredVersion = "2.28.9";

const untilEarly29 = { minimumTraffic: 16_384, trafficStep: 1 } as const;
const since29 = { minimumTraffic: 32_768, trafficStep: 16 } as const;

/** Rules of each minor version, and the version that a name without a patch number stands for. */
const minors = {
  "2.27": { ...untilEarly29, latest: "2.27.7" },
  "2.28": { ...untilEarly29, latest: measuredVersion },
  "2.29": { ...since29, latest: "2.29.7" },
  "2.30": { ...since29, latest: "2.30.7" },
} as const;

type Minor = keyof typeof minors;

/** Minor versions with known rules. */
export const ncclVersions = Object.keys(minors) as Minor[];

/** The NCCL in the wheel of each version of torch for CUDA 13. */
const torchWheels = {
  "2.10": "2.28.9",
  "2.11": "2.28.9",
  "2.12": "2.29.7",
  "2.13": "2.29.7",
  "2.14": "2.30.7",
} as const;

/** A library with known plans. */
export type LibraryName =
  | "nccl-2.27"
  | "nccl-2.28"
  | "nccl-2.29"
  | "nccl-2.30"
  | "torch-2.10"
  | "torch-2.11"
  | "torch-2.12"
  | "torch-2.13"
  | "torch-2.14";

/** Names of the libraries with known plans. */
export const libraryNames: readonly LibraryName[] = [
  ...ncclVersions.map((version) => `nccl-${version}` as const),
  ...(Object.keys(torchWheels) as (keyof typeof torchWheels)[]).map(
    (version) => `torch-${version}` as const,
  ),
];

/** A library that plans follow. */
export interface Library {
  /** NCCL's version. */
  readonly version: string;
  /** The torch that brings it, in words. */
  readonly wheel: string | undefined;
}

/** The library of a name; also of names with a patch number, such as `nccl-2.29.3`. `undefined` for an unknown one. */
export function libraryOf(name: string): Library | undefined {
  assertArgument(typeof name === "string", "libraryOf", "name", name, "a name, such as nccl-2.28");
  const [family, version = "", ...rest] = name.split("-");
  if (rest.length > 0) return undefined;
  if (family === "torch" && Object.hasOwn(torchWheels, version)) {
    const ships = torchWheels[version as keyof typeof torchWheels];
    return { version: ships, wheel: `torch ${version} for CUDA 13` };
  }
  return family === "nccl" && minorOf(version) !== undefined
    ? { version, wheel: undefined }
    : undefined;
}

function minorOf(version: string): Minor | undefined {
  const [, minor = ""] = /^(2\.\d+)(?:\.\d{1,2})?$/.exec(version) ?? [];
  return Object.hasOwn(minors, minor) ? (minor as Minor) : undefined;
}

/** Rules by version, computed once. */
const known = new Map<string, VersionRules>();

/** The rules of a version. Throws for an unknown one. */
export function rulesOf(version: string): VersionRules {
  const rules = known.get(version) ?? newRulesOf(version);
  known.set(version, rules);
  return rules;
}

function newRulesOf(version: string): VersionRules {
  if (typeof version !== "string") {
    throw invalid("plan of NCCL", "version", textOf(version), 'a text such as "2.28"');
  }
  const minor = minorOf(version);
  if (minor !== undefined) {
    const { latest, ...rules } = minors[minor];
    const full = version === minor ? latest : version;
    const evidence = full === measuredVersion ? "measured" : "source";
    return {
      ...rules,
      version: full,
      evidence,
      knowsSymmetric: minor === "2.28",
      misloads: minor !== "2.30",
      misplaces: minor === "2.28" && Number(full.split(".")[2]) < 7,
    };
  }
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
  /** NCCL_NTHREADS: threads of a block under LL and Simple; 0 is NCCL's default. */
  readonly threads?: number | undefined;
  /** NCCL_LL128_NTHREADS. */
  readonly ll128Threads?: number | undefined;
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
  threads: 0,
  ll128Threads: 0,
};

/** Least and most value of each setting. */
const ranges: Readonly<Record<keyof NcclSettings, readonly [least: number, most: number]>> = {
  maxChannels: [1, channelLimit],
  minChannels: [1, channelLimit],
  buffSize: [1, Number.MAX_SAFE_INTEGER],
  llBuffSize: [1, Number.MAX_SAFE_INTEGER],
  ll128BuffSize: [1, Number.MAX_SAFE_INTEGER],
  threads: [0, Number.MAX_SAFE_INTEGER],
  ll128Threads: [0, Number.MAX_SAFE_INTEGER],
};

/**
 * Fills in NCCL's defaults, and checks every setting. `path` precedes the fields of errors.
 *
 * @throws InvalidArgumentError for a value out of range, and for more `minChannels` than `maxChannels`.
 */
export function resolveSettings(settings: NcclSettings = {}, path = "settings"): ResolvedSettings {
  const resolved: { -readonly [K in keyof ResolvedSettings]: number } = { ...defaults };
  for (const field of Object.keys(defaults) as (keyof NcclSettings)[]) {
    const value = settings[field];
    if (value === undefined) continue;
    const [least, most] = ranges[field];
    if (!Number.isInteger(value) || value < least || value > most) {
      const unit = field.endsWith("Size") ? "bytes" : "an integer";
      const needed = most === channelLimit ? `1..${most}` : `${unit} of at least ${least}`;
      throw invalid("plan of NCCL", `${path}.${field}`, textOf(value), needed);
    }
    resolved[field] = value;
  }
  const { minChannels, maxChannels } = resolved;
  if (minChannels > maxChannels) {
    const needed = `at most maxChannels, ${maxChannels}`;
    throw invalid("plan of NCCL", `${path}.minChannels`, textOf(minChannels), needed);
  }
  return resolved;
}

/** Refuses a value that is not a plan. */
export function assertPlan(
  action: string,
  plan: { readonly undefinedBlocks: readonly number[] },
  field = "plan",
): void {
  // Not `pieces`, which are computed on first use.
  if (Array.isArray((plan as typeof plan | undefined)?.undefinedBlocks)) return;
  throw invalid(action, field, textOf(plan), "a plan of ncclPlan");
}
