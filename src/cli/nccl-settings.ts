/**
 * Settings of NCCL on the command line: `protocol=LL,maxChannels=4`, and NCCL's own variables, `NCCL_ALGO=allreduce:tree,ring`.
 *
 * This file separates settings and reads values of fields; NCCL's variables are parsed in `algorithms/nccl/environment.ts`.
 */
import {
  type LibraryName,
  libraryNames,
  libraryOf,
  type NcclVariables,
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

type Key = Exclude<keyof NcclSetup, "variables">;

/** Every setting of its own name; `rings` are those of all channels. */
const keys = [
  ...(["algorithm", "protocol", "channels", "maxChannels", "minChannels", "rings"] as const),
  ...(["buffSize", "llBuffSize", "ll128BuffSize", "threads", "ll128Threads"] as const),
] satisfies readonly Key[];

const words = { algorithm: ["Ring", "Tree", "PAT"], protocol: ["LL", "LL128", "Simple"] } as const;

/** For help texts. */
export const ncclSettingsHelp = `SETTINGS of NCCL, with commas between: algorithm=Ring|Tree|PAT, protocol=LL|LL128|Simple,
channels=N, maxChannels=N, minChannels=N, rings=0+2+1 (the ranks of every ring in order),
buffSize=BYTES, llBuffSize=BYTES, ll128BuffSize=BYTES, symmetric (both buffers in symmetric memory);
or NCCL's variables, as NCCL parses them: NCCL_ALGO=ring;allreduce:tree,ring. default: nothing set.
`;

/** Separates settings: commas also stand within the value of a variable, so a setting begins after the comma before a name. */
export function separateSettings(text: string): string[] {
  return text.split(/,(?=[\w-]+=|symmetric(?:,|$))/);
}

/** True for the name of a setting. */
export function isNcclSetting(name: string): boolean {
  return isVariable(name) || (keys as readonly string[]).includes(name);
}

function isVariable(name: string): boolean {
  return /^NCCL_\w+$/.test(name);
}

/** Parses settings; `undefined` and `default` set none. */
export function ncclChoice(option: string, text: string | undefined): NcclChoice {
  let setup: NcclSetup = {};
  let symmetric = false;
  for (const setting of text === undefined || text === "default" ? [] : separateSettings(text)) {
    if (setting === "symmetric") symmetric = true;
    else setup = withSetting(option, setup, setting);
  }
  return { setup, symmetric };
}

/**
 * NCCL's variables alone.
 *
 * @throws UsageError for anything else.
 */
export function ncclVariables(option: string, text: string | undefined): NcclVariables {
  let setup: NcclSetup = {};
  for (const setting of text === undefined ? [] : separateSettings(text)) {
    if (!isVariable(nameIn(setting))) {
      throw new UsageError(
        `${option}: found "${setting}", needs NCCL's variables: NCCL_PROTO=Simple`,
      );
    }
    setup = withSetting(option, setup, setting);
  }
  return setup.variables ?? {};
}

function nameIn(setting: string): string {
  return setting.split("=", 1)[0] as string;
}

/** Adds a setting to others; each may occur once. */
export function withSetting(option: string, setup: NcclSetup, setting: string): NcclSetup {
  const name = nameIn(setting);
  const value = setting.slice(name.length + 1);
  const { variables = {} } = setup;
  const all: object = isVariable(name) ? variables : setup;
  if (Object.hasOwn(all, name)) throw new UsageError(`${option}: ${name} is set twice`);
  if (isVariable(name)) {
    if (!setting.includes("=")) throw new UsageError(`${option}: ${name} has no value`);
    return { ...setup, variables: { ...variables, [name]: value } };
  }
  return { ...setup, ...field(option, name, value) };
}

/** One setting of its own name. */
function field(option: string, name: string, value: string): NcclSetup {
  const key = keys.find((each) => each === name);
  if (key === undefined) {
    const known = [...keys, "NCCL's variables", "symmetric"].join(", ");
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

/** The library of `--like`. */
export function libraryNameOf(option: string, name: string): LibraryName {
  // A name may have a patch number.
  return libraryOf(name) === undefined ? oneOf(option, name, libraryNames) : (name as LibraryName);
}
