/** Settings of NCCL on the command line: `protocol=LL,maxChannels=4`, or as NCCL's own variables, `NCCL_PROTO=LL`. */
import {
  type LibraryName,
  libraryNames,
  libraryOf,
  type TopologyName,
  topologies,
} from "../algorithms/index.ts";
import type { NcclSetup } from "../golden/case.ts";
import { UsageError } from "./context.ts";
import { oneOf } from "./options.ts";

/** The settings. */
export interface NcclChoice {
  readonly setup: NcclSetup;
  /** True if both buffers lie in symmetric memory. */
  readonly symmetric: boolean;
}

type Key = keyof NcclSetup;

/** Every setting by our name and by NCCL's variables. */
const keys: Readonly<Record<string, Key>> = {
  algorithm: "algorithm",
  NCCL_ALGO: "algorithm",
  protocol: "protocol",
  NCCL_PROTO: "protocol",
  channels: "channels",
  rings: "rings",
  maxChannels: "maxChannels",
  NCCL_MAX_NCHANNELS: "maxChannels",
  NCCL_MAX_CTAS: "maxChannels",
  minChannels: "minChannels",
  NCCL_MIN_NCHANNELS: "minChannels",
  NCCL_MIN_CTAS: "minChannels",
  buffSize: "buffSize",
  NCCL_BUFFSIZE: "buffSize",
  llBuffSize: "llBuffSize",
  NCCL_LL_BUFFSIZE: "llBuffSize",
  ll128BuffSize: "ll128BuffSize",
  NCCL_LL128_BUFFSIZE: "ll128BuffSize",
};

const words = { algorithm: ["Ring", "Tree", "PAT"], protocol: ["LL", "LL128", "Simple"] } as const;

/** For help texts. */
export const ncclSettingsHelp = `SETTINGS of NCCL, with commas between: algorithm=Ring|Tree|PAT, protocol=LL|LL128|Simple,
channels=N, maxChannels=N, minChannels=N, rings=0+2+1 (the ranks of every ring in order),
buffSize=BYTES, llBuffSize=BYTES, ll128BuffSize=BYTES, symmetric (both buffers in symmetric memory);
NCCL's variables are understood too (NCCL_ALGO=Ring). default: nothing set.
`;

/** True for the name of a setting. */
export function isNcclSetting(name: string): boolean {
  return Object.hasOwn(keys, name);
}

/** Parses settings; `undefined` and `default` set none. */
export function ncclChoice(option: string, text: string | undefined): NcclChoice {
  let setup: NcclSetup = {};
  let symmetric = false;
  for (const setting of text === undefined || text === "default" ? [] : text.split(",")) {
    const [name = "", value = ""] = setting.split("=");
    if (setting === "symmetric") symmetric = true;
    else setup = joined(option, setup, ncclSetting(option, name, value));
  }
  return { setup, symmetric };
}

/** Adds a setting to others; a setting may occur once, under either name. */
export function joined(option: string, setup: NcclSetup, more: NcclSetup): NcclSetup {
  const twice = Object.keys(more).find((key) => Object.hasOwn(setup, key));
  if (twice === undefined) return { ...setup, ...more };
  throw new UsageError(`${option}: ${twice} is set twice`);
}

/** One setting. */
export function ncclSetting(option: string, name: string, value: string): NcclSetup {
  const key = isNcclSetting(name) ? keys[name] : undefined;
  if (key === undefined) {
    const known = [...new Set(Object.values(keys)), "symmetric"].join(", ");
    throw new UsageError(`${option}: found "${name}", needs settings out of ${known}`);
  }
  if (key === "algorithm" || key === "protocol") {
    const word = words[key].find((each) => each.toLowerCase() === value.toLowerCase());
    return { [key]: word ?? oneOf(`${option}: ${name}`, value, words[key]) };
  }
  if (key === "rings") return { rings: numbersOf(option, name, value) };
  if (/^\d{1,15}$/.test(value) && Number(value) > 0) return { [key]: Number(value) };
  throw new UsageError(`${option}: ${name}: found "${value}", needs a whole number above 0`);
}

/** Numbers with plus signs between: `0+2+1`. */
export function numbersOf(option: string, name: string, value: string): number[] {
  if (/^\d{1,9}(\+\d{1,9})*$/.test(value)) return value.split("+").map(Number);
  throw new UsageError(`${option}: ${name}: found "${value}", needs numbers such as 0+2+1`);
}

const machines = Object.keys(topologies) as TopologyName[];

/** Names of machines with known plans, for help texts. */
export const machineNames = machines.join(" or ");

/** The machine of that name. */
export function topologyNameOf(option: string, name: string): TopologyName {
  return oneOf(option, name, machines);
}

/** The library of `--like`. */
export function libraryNameOf(option: string, name: string): LibraryName {
  // A name may have a patch number.
  return libraryOf(name) === undefined ? oneOf(option, name, libraryNames) : (name as LibraryName);
}
