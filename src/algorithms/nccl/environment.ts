/**
 * NCCL's environment variables as NCCL parses them, from 2.24 to 2.30: the one parser of every `--nccl`, pin and question.
 *
 * NCCL_ALGO and NCCL_PROTO are lists with semicolons between: `ring;allreduce:tree,ring`. An entry names a collective, or, as the
 * first one only, all of them. It allows what it names and forbids the rest; after `^` it is the reverse. Collectives without an
 * entry keep everything. Letters may be large or small, and empty words do not count. Words that NCCL does not know are an error,
 * as in NCCL. From 2.31 on a list forbids every collective that it does not name; plans of those versions are refused.
 */

import { invalid, textOf } from "../../api/option-kinds.ts";
import type { Forced } from "./choice.ts";
import {
  algorithms,
  type NcclAlgorithm,
  type NcclCollective,
  type NcclSettings,
  ncclCollectives,
  protocols,
} from "./rules.ts";

/** All algorithms by NCCL's names; plans are known of Tree, Ring and PAT. */
const algorithmNames = [
  "Tree",
  "Ring",
  "CollnetDirect",
  "CollnetChain",
  "NVLS",
  "NVLSTree",
  "PAT",
] as const;

const numbers: Readonly<Record<string, keyof NcclSettings>> = {
  NCCL_MAX_CTAS: "maxChannels",
  NCCL_MAX_NCHANNELS: "maxChannels",
  NCCL_MAX_NRINGS: "maxChannels",
  NCCL_MIN_CTAS: "minChannels",
  NCCL_MIN_NCHANNELS: "minChannels",
  NCCL_MIN_NRINGS: "minChannels",
  NCCL_BUFFSIZE: "buffSize",
  NCCL_LL_BUFFSIZE: "llBuffSize",
  NCCL_LL128_BUFFSIZE: "ll128BuffSize",
  NCCL_NTHREADS: "threads",
  NCCL_LL128_NTHREADS: "ll128Threads",
};

/** Variables that change no plan of Ring, Tree and PAT. */
const neutral: readonly string[] = [
  ...["NCCL_COLLNET_ENABLE", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_GRAPH_REGISTER"],
  ...["NCCL_HOSTID", "NCCL_LAUNCH_MODE", "NCCL_P2P_NET_DISABLE"],
  ...["NCCL_SOCKET_IFNAME", "NCCL_SOCKET_NTHREADS", "NCCL_WIN_ENABLE"],
];

/** Switches: 0 is off, 2 is NCCL's choice by machine. */
const switches = { nvls: "NCCL_NVLS_ENABLE", pat: "NCCL_PAT_ENABLE" } as const;

const known: readonly string[] = [
  ...["NCCL_ALGO", "NCCL_PROTO"],
  ...Object.keys(numbers),
  ...Object.values(switches),
  ...neutral,
];

/** Values of NCCL's variables by name. */
export type NcclVariables = Readonly<Record<string, string>>;

/** Settings of NCCL as its variables give them. */
export interface NcclEnvironment {
  readonly settings: NcclSettings;
  /**
   * The algorithms and protocols that NCCL may choose from for a collective.
   *
   * @throws InvalidArgumentError where no protocol is left, or only algorithms without a known plan.
   */
  forced(collective: NcclCollective): Forced;
  /** True if nothing forbids in-switch reduction (NVLS) of a collective, of which no plan is known. */
  allowsNvls(collective: NcclCollective): boolean;
}

/**
 * The settings that variables make.
 *
 * @throws InvalidArgumentError for variables and words that are unknown.
 */
export function ncclEnvironment(variables: NcclVariables): NcclEnvironment {
  if (typeof variables !== "object" || variables === null) {
    throw fault("variables", textOf(variables), "an object with NCCL's variables by name");
  }
  const settings: { -readonly [K in keyof NcclSettings]: number } = {};
  for (const [name, value] of Object.entries(variables)) {
    if (typeof value !== "string")
      throw fault(name, textOf(value), "a text, as in the environment");
    const field = Object.hasOwn(numbers, name) ? numbers[name] : undefined;
    if (field !== undefined) {
      if (settings[field] !== undefined) throw fault(name, `"${value}"`, "it once, by one name");
      settings[field] = wholeNumber(name, value);
    } else if (!known.includes(name)) {
      throw fault(name, "a variable with unknown effect", `one of ${known.join(", ")}`);
    }
  }
  assertLimits(variables, settings);
  const { NCCL_ALGO, NCCL_PROTO } = variables;
  const algorithmsOf = allowedWords("NCCL_ALGO", NCCL_ALGO, algorithmNames);
  const protocolsOf = allowedWords("NCCL_PROTO", NCCL_PROTO, protocols);
  const hasNvls = isOn(variables, switches.nvls);
  const hasPat = isOn(variables, switches.pat);
  return {
    settings,
    forced: (collective) => {
      const listed = algorithmsOf[collective] ?? (hasPat ? undefined : algorithmNames);
      const algorithm = listed && algorithms.filter((name) => isAllowed(name, listed, hasPat));
      const protocol = protocolsOf[collective];
      if (algorithm?.length === 0) {
        const needed = `Ring or Tree: no plan of ${listed?.join(", ") || "none"} is known`;
        throw fault("NCCL_ALGO", `"${NCCL_ALGO}"`, needed);
      }
      if (protocol?.length === 0) {
        throw fault("NCCL_PROTO", `"${NCCL_PROTO}"`, "at least one protocol");
      }
      return { algorithm, protocol };
    },
    allowsNvls: (collective) => {
      const reduces = collective === "allReduce" || collective === "reduceScatter";
      return reduces && hasNvls && (algorithmsOf[collective]?.includes("NVLS") ?? true);
    },
  };
}

/** The setting that a variable gives as a number. */
export function settingOf(name: string): keyof NcclSettings | undefined {
  return Object.hasOwn(numbers, name) ? numbers[name] : undefined;
}

/** Throws for a least number of channels above the most. */
function assertLimits(variables: NcclVariables, settings: NcclSettings): void {
  const { minChannels = 1, maxChannels = minChannels } = settings;
  if (minChannels <= maxChannels) return;
  const nameOf = (setting: keyof NcclSettings): string =>
    Object.keys(variables).find((name) => settingOf(name) === setting) as string;
  const needed = `at most ${nameOf("maxChannels")}, ${maxChannels}`;
  throw fault(nameOf("minChannels"), `"${minChannels}"`, needed);
}

function isAllowed(name: NcclAlgorithm, listed: readonly string[], hasPat: boolean): boolean {
  return listed.includes(name) && (name !== "PAT" || hasPat);
}

function isOn(variables: NcclVariables, name: string): boolean {
  const value = variables[name] ?? "2";
  const most = name === switches.nvls ? 2 : 0;
  // PAT within a node is on with 1 alone; no plan of it is known.
  if (value === "2" || (/^\d+$/.test(value) && Number(value) <= most)) return Number(value) !== 0;
  throw fault(name, `"${value}"`, most === 0 ? "0 or 2" : "0, 1 or 2");
}

function fault(name: string, found: string, needed: string): Error {
  return invalid("settings of NCCL", name, found, needed);
}

function wholeNumber(name: string, value: string): number {
  // NCCL reads octal after a leading 0.
  if (/^(0|[1-9]\d{0,14})$/.test(value) && (Number(value) > 0 || name.endsWith("NTHREADS"))) {
    return Number(value);
  }
  throw fault(name, `"${value}"`, "a whole number above 0, without a leading 0");
}

/** The words that a list allows, by collective; `undefined` for one without an entry. */
function allowedWords<T extends string>(
  name: string,
  list: string | undefined,
  words: readonly T[],
): { readonly [C in NcclCollective]?: readonly T[] } {
  const allowed: { [C in NcclCollective]?: readonly T[] } = {};
  for (const { 0: entry, index } of (list ?? "").matchAll(/[^;]+/g)) {
    const [first = "", second, ...more] = entry.split(":").filter((part) => part !== "");
    if (first === "" || more.length > 0) {
      throw fault(name, `"${entry}"`, "a collective, one colon and words");
    }
    if (second === undefined && index > 0) {
      throw fault(name, `"${entry}"`, "a collective before every entry but the first");
    }
    const found = entryWords(name, second ?? first, words);
    for (const owner of second === undefined ? ncclCollectives : [collectiveOf(name, first)]) {
      allowed[owner] = found;
    }
  }
  return allowed;
}

/** A collective by NCCL's own name, which has small letters. */
function collectiveOf(name: string, prefix: string): NcclCollective {
  const owner = ncclCollectives.find((each) => each.toLowerCase() === prefix.toLowerCase());
  if (owner !== undefined) return owner;
  throw fault(name, `"${prefix}"`, `a collective: ${ncclCollectives.join(", ").toLowerCase()}`);
}

/** The words that one entry allows. */
function entryWords<T extends string>(name: string, text: string, words: readonly T[]): T[] {
  const forbids = text.startsWith("^");
  const named = (forbids ? text.slice(1) : text).split(",").filter((word) => word !== "");
  const found = named.map((word) => {
    const meant = words.find((each) => each.toLowerCase() === word.toLowerCase());
    if (meant === undefined) throw fault(name, `"${word}"`, `words of ${words.join(", ")}`);
    return meant;
  });
  return words.filter((word) => found.includes(word) !== forbids);
}
