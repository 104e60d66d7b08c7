/**
 * NCCL's environment variables as NCCL parses them, from 2.24 on.
 *
 * NCCL_ALGO and NCCL_PROTO are lists with semicolons between: `ring;allreduce:tree,ring`. An entry names a collective, or, as the
 * first one only, all of them. It allows what it names and forbids the rest; after `^` it is the reverse. Collectives without an
 * entry keep everything. Letters may be large or small. Words that NCCL does not know are an error, as in NCCL.
 */

import { invalid } from "../../api/option-kinds.ts";
import type { Forced } from "./choice.ts";
import {
  algorithms,
  type NcclAlgorithm,
  type NcclCollective,
  type NcclProtocol,
  type NcclSettings,
  protocols,
} from "./rules.ts";

/** NCCL's collectives by its own names. */
const collectiveNames: Readonly<Record<string, NcclCollective>> = {
  broadcast: "broadcast",
  reduce: "reduce",
  allgather: "allGather",
  reducescatter: "reduceScatter",
  allreduce: "allReduce",
};

/** All algorithms by NCCL's names; the plans here have the first two. */
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
  NCCL_MIN_CTAS: "minChannels",
  NCCL_MIN_NCHANNELS: "minChannels",
  NCCL_BUFFSIZE: "buffSize",
  NCCL_LL_BUFFSIZE: "llBuffSize",
  NCCL_LL128_BUFFSIZE: "ll128BuffSize",
  NCCL_NTHREADS: "threads",
  NCCL_LL128_NTHREADS: "ll128Threads",
};

/** Variables that change neither Ring nor Tree. */
const neutral: readonly string[] = [
  ...["NCCL_COLLNET_ENABLE", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_GRAPH_REGISTER"],
  ...["NCCL_HOSTID", "NCCL_LAUNCH_MODE", "NCCL_P2P_NET_DISABLE", "NCCL_PAT_ENABLE"],
  ...["NCCL_SOCKET_IFNAME", "NCCL_SOCKET_NTHREADS", "NCCL_WIN_ENABLE"],
];

const nvlsSwitch = "NCCL_NVLS_ENABLE";

/** Settings of NCCL as its variables give them, for one collective. */
export interface NcclEnvironment {
  readonly settings: NcclSettings;
  readonly forced: Forced;
  /** True if nothing forbids in-switch reduction (NVLS), of which no plan is known. */
  readonly allowsNvls: boolean;
}

/**
 * The settings that variables make for a collective.
 *
 * @throws InvalidArgumentError for variables and words that are unknown, and where only algorithms without a known plan are left.
 */
export function ncclEnvironment(
  variables: Readonly<Record<string, string>>,
  collective: NcclCollective,
): NcclEnvironment {
  const settings: { -readonly [K in keyof NcclSettings]: number } = {};
  for (const [name, value] of Object.entries(variables)) {
    const field = Object.hasOwn(numbers, name) ? numbers[name] : undefined;
    if (field !== undefined) {
      if (settings[field] !== undefined) throw fault(name, `"${value}"`, "it once, by one name");
      settings[field] = wholeNumber(name, value);
    } else if (!["NCCL_ALGO", "NCCL_PROTO", nvlsSwitch, ...neutral].includes(name)) {
      const known = ["NCCL_ALGO", "NCCL_PROTO", ...Object.keys(numbers), nvlsSwitch, ...neutral];
      throw fault(name, "a variable with unknown effect", `one of ${known.join(", ")}`);
    }
  }
  const { NCCL_ALGO, NCCL_PROTO } = variables;
  const listed = allowedWords("NCCL_ALGO", NCCL_ALGO, collective, algorithmNames);
  const protocol = allowedWords("NCCL_PROTO", NCCL_PROTO, collective, protocols);
  const algorithm = listed && algorithms.filter((name) => listed.includes(name));
  if (algorithm?.length === 0) {
    throw fault("NCCL_ALGO", `"${NCCL_ALGO}"`, `Ring or Tree: no plan of ${listed} is known`);
  }
  if (protocol?.length === 0) throw fault("NCCL_PROTO", `"${NCCL_PROTO}"`, "at least one protocol");
  const isOff = Number(variables[nvlsSwitch] ?? 2) === 0;
  const reduces = collective === "allReduce" || collective === "reduceScatter";
  const allowsNvls = reduces && !isOff && (listed?.includes("NVLS") ?? true);
  return { settings, forced: { algorithm, protocol }, allowsNvls };
}

function fault(name: string, found: string, needed: string): Error {
  return invalid("settings of NCCL", name, found, needed);
}

function wholeNumber(name: string, value: string): number {
  if (/^\d{1,15}$/.test(value) && (Number(value) > 0 || name.endsWith("NTHREADS"))) {
    return Number(value);
  }
  throw fault(name, `"${value}"`, "a whole number above 0");
}

/** The words that a list allows for a collective; `undefined` where it has no entry for it. */
function allowedWords<T extends NcclAlgorithm | NcclProtocol | string>(
  name: string,
  list: string | undefined,
  collective: NcclCollective,
  words: readonly T[],
): readonly T[] | undefined {
  if (list === undefined) return undefined;
  let allowed: readonly T[] | undefined;
  for (const [at, entry] of list.split(";").entries()) {
    const [first = "", second] = entry.split(":");
    const prefix = second === undefined ? undefined : first;
    if (prefix === undefined && at > 0) {
      throw fault(name, `"${entry}"`, "a collective before every entry but the first");
    }
    const owner = prefix === undefined ? collective : collectiveNames[prefix.toLowerCase()];
    if (owner === undefined) {
      const names = Object.keys(collectiveNames).join(", ");
      throw fault(name, `"${prefix}"`, `a collective: ${names}`);
    }
    const found = entryWords(name, second ?? first, words);
    if (owner === collective) allowed = found;
  }
  return allowed;
}

/** The words that one entry allows. */
function entryWords<T extends string>(name: string, text: string, words: readonly T[]): T[] {
  const forbids = text.startsWith("^");
  const named = (forbids ? text.slice(1) : text).split(",").filter((word) => word !== "");
  const found = named.map((word) => {
    const known = words.find((each) => each.toLowerCase() === word.toLowerCase());
    if (known === undefined) throw fault(name, `"${word}"`, `words of ${words.join(", ")}`);
    return known;
  });
  return words.filter((word) => found.includes(word) !== forbids);
}
