/** Known properties of versions of NCCL: known plans and their GPUs, and symmetric kernels that load wrongly. */
import { type LibraryName, libraryNames } from "../../../algorithms/index.ts";
import { questionPlace } from "../../../api/backend-entry.ts";
import { bytesOf, type Question } from "../../../api/index.ts";
import { versionText } from "./libraries.ts";

/** The library with the plans of a version of NCCL, with its patch number; `undefined` where they are unknown. */
export function plannedLibrary(versionCode: number): LibraryName | undefined {
  const [major, minor] = [Math.floor(versionCode / 10_000), Math.floor(versionCode / 100) % 100];
  const isKnown = libraryNames.some((name) => name === `nccl-${major}.${minor}`);
  // Plans follow names with a patch number too.
  return isKnown ? (`nccl-${versionText(versionCode)}` as LibraryName) : undefined;
}

/** True for versions whose choice among symmetric kernels is known. */
export function knowsSymmetricKernels(versionCode: number): boolean {
  return Math.floor(versionCode / 100) === 228;
}

/** The machine of the known plans. */
const known = { capability: 9, ranks: 8 } as const;

/** Reason why NCCL's plans are unknown on GPUs of these compute capabilities; `undefined` if known. */
export function otherMachine(capabilities: readonly number[], ranks: number): string | undefined {
  const other = capabilities.find((each) => each !== known.capability);
  if (other !== undefined) {
    return `plans are known for GPUs of compute capability ${known.capability}.0, not for ${other.toFixed(1)}`;
  }
  if (ranks <= known.ranks) return undefined;
  return `plans are known for ${known.ranks} GPUs, not for ${ranks}`;
}

/**
 * Variables of NCCL that change its plans: algorithms, symmetric kernels, blocks (CTAs), channels, threads, tuners,
 * and its view of the machine.
 */
const planVariables = new RegExp(
  `^NCCL_(${[
    "ALGO|PROTO|WIN_ENABLE|SYM_.+|CTA_POLICY|TUNER_.+",
    "(MIN|MAX)_(CTAS|NCHANNELS|NRINGS)|(LL128_)?NTHREADS|THREAD_THRESHOLDS",
    "GRAPH_FILE|TOPO_FILE|P2P_DISABLE|P2P_LEVEL|SHM_DISABLE|HOSTID|COLLNET_ENABLE|PAT_ENABLE",
  ].join("|")})$`,
);

/** Names of the set variables that change plans. */
export function setPlanVariables(env: NodeJS.ProcessEnv): string[] {
  return Object.keys(env).filter((name) => planVariables.test(name) && env[name] !== "");
}

/**
 * From 2.27.3 to 2.29.7, symmetric kernels compute wrong sums of 1- and 2-byte types at addresses that are not multiples
 * of 4. The backend keeps such calls away from these kernels.
 */
export function hasLoadDefect(versionCode: number): boolean {
  return versionCode >= 22703 && versionCode <= 22907;
}

/** 2.28.3, of 2.28 the only one before 2.28.7, moves blocks of symmetric memory that are no multiple of 8 bytes wrongly. */
function hasPlaceDefect(versionCode: number): boolean {
  return versionCode >= 22800 && versionCode < 22807;
}

const wordBytes = 4;
const packBytes = 8;

/**
 * Reason why a symmetric call may give wrong results. Without known plans, every address that is not a multiple of 4 counts,
 * and under 2.28.3 every block that is no multiple of 8 bytes, for any kernel.
 */
export function misalignment(question: Question, versionCode: number): string | undefined {
  const { collective, dtype = "float32", count = 0 } = question;
  const place = questionPlace(question);
  const bytes = bytesOf(dtype);
  if (place === undefined) return undefined;
  const hasBlocks = collective === "reduceScatter" || collective === "allGather";
  if (hasPlaceDefect(versionCode) && hasBlocks && (count * bytes) % packBytes !== 0) {
    return `symmetric ${dtype} in blocks of ${count * bytes} bytes, no multiple of 8: NCCL ${versionText(versionCode)} may move them between wrong places; take blocks of a multiple of 8 bytes, allocate without symmetric, or use NCCL from 2.28.7 on`;
  }
  if (bytes >= wordBytes) return undefined;
  const block = collective === "allReduce" ? 0 : count * bytes;
  const starts = [place.send, place.recv, place.send + block, place.recv + block];
  if (starts.every((start) => start % wordBytes === 0)) return undefined;
  return `symmetric ${dtype} at an address that is no multiple of 4: this NCCL may give wrong bits for it; align buffers and blocks to 4 bytes, or allocate without symmetric`;
}
