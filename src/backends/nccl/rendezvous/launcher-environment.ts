/**
 * The rank of this process, from the variables of the launcher that started it.
 *
 * Rank, size and local rank come from one launcher, never from two. The first complete family counts, in this order:
 * `twinccl launch`, torchrun, Open MPI, a Slurm step. An inner launcher is found before the outer one that usually starts
 * it (torchrun or mpirun inside Slurm, `twinccl launch` inside anything). A family that is only half set, before the one
 * that counts, is an error that names what is missing; so are torchrun and Open MPI when both are complete and disagree.
 */
import { createHash } from "node:crypto";
import { getEnvironmentData, setEnvironmentData } from "node:worker_threads";
import { InvalidArgumentError } from "../../../api/index.ts";
import {
  type Family,
  type FamilyName,
  families,
  isMeant,
  numberOf,
  textOf,
  type Variables,
} from "./launcher-families.ts";
import { limits } from "./limits.ts";

/** The launcher's facts about a process. */
export interface LauncherEnvironment {
  readonly family: FamilyName;
  readonly rank: number;
  readonly size: number;
  /** Rank among those on this machine: the index of its GPU. */
  readonly localRank: number;
  /** Number of ranks on this machine; `undefined` when the launcher does not say. */
  readonly localSize: number | undefined;
  readonly jobId: string;
  /** Where the store listens, or is to listen; `TWINCCL_ADDRESS` and `TWINCCL_PORT` count before the launcher's. */
  readonly address: string | undefined;
  readonly port: number | undefined;
  /** `TWINCCL_SECRET`. */
  readonly secret: string | undefined;
  /** The host of the store: `twinccl launch` itself, or rank 0 under other launchers. */
  readonly storeHost: "launcher" | "rank 0";
  /** `TWINCCL_RENDEZVOUS_FILE`: a file or folder to meet at instead. */
  readonly file: string | undefined;
  /** True when the address, the port or the secret was given by a variable of twinccl. */
  readonly isNetworkChosen: boolean;
}

/** The variable that holds the job's secret, and the key of the value that is taken from it. */
const secretName = "TWINCCL_SECRET";

/**
 * The variables of this process. The secret is taken out of `process.env`, so that what the process starts does not inherit it;
 * later calls, and those in worker threads that start later, still get it.
 */
export function launcherVariables(): Variables {
  const given = textOf(process.env, secretName);
  if (given !== undefined) setEnvironmentData(secretName, given);
  delete process.env[secretName];
  return { ...process.env, [secretName]: getEnvironmentData(secretName) as string | undefined };
}

/**
 * Reads the variables of a launcher; `undefined` when no launcher has set any.
 *
 * @throws InvalidArgumentError for a variable that is no number or out of range, a family that is half set, or two that
 *   disagree.
 */
export function launcherEnvironment(env: Variables): LauncherEnvironment | undefined {
  const meant = families.filter((family) => isMeant(family, env));
  const at = meant.findIndex((family) => missingOf(family, env).length === 0);
  const half = at < 0 ? meant : meant.slice(0, at);
  if (half.length > 0) throw halfSet(half, at < 0 ? undefined : meant[at], env);
  const family = meant[at];
  if (family === undefined) return undefined;
  const found = read(family, env);
  for (const other of meant.slice(at + 1)) {
    // Slurm is commonly around another launcher; two others are not around each other.
    const isBeside = family.name === "torchrun" && other.name === "openmpi";
    if (isBeside && missingOf(other, env).length === 0) refuseToDiffer(found, other, env);
  }
  return found;
}

function missingOf({ needs }: Family, env: Variables): string[] {
  return needs.filter((name) => textOf(env, name) === undefined);
}

function read(family: Family, env: Variables): LauncherEnvironment {
  const { texts } = family;
  const size = numberOf(env, texts.size, 1, limits.ranks);
  const rank = numberOf(env, texts.rank, 0, size - 1);
  const isTold = texts.localSize !== undefined && textOf(env, texts.localSize) !== undefined;
  const localSize = isTold
    ? numberOf(env, texts.localSize ?? "", 1, size)
    : family.localSize?.(env);
  const localRank = numberOf(env, texts.localRank, 0, (localSize ?? size) - 1);
  const isOwn = family.name === "twinccl";
  const given = ["TWINCCL_ADDRESS", "TWINCCL_PORT", secretName];
  const hasPort = textOf(env, "TWINCCL_PORT") !== undefined;
  return {
    ...{
      family: family.name,
      rank,
      size,
      localRank,
      localSize,
      jobId: shortened(family.jobId(env)),
    },
    address: textOf(env, "TWINCCL_ADDRESS") ?? family.address(env),
    port: hasPort ? numberOf(env, "TWINCCL_PORT", 1, 65_535) : family.port(env),
    secret: textOf(env, secretName),
    storeHost: isOwn && textOf(env, "TWINCCL_STORE") === "launcher" ? "launcher" : "rank 0",
    file: textOf(env, "TWINCCL_RENDEZVOUS_FILE"),
    isNetworkChosen: given.some((name) => textOf(env, name) !== undefined),
  };
}

/** A job id that is too long to be one keeps its beginning, and a hash of the rest. */
function shortened(jobId: string): string {
  if (Buffer.byteLength(jobId) <= limits.jobIdBytes) return jobId;
  const hash = createHash("sha256").update(jobId).digest("hex");
  return `${jobId.replace(/[^\x20-\x7e]/g, "_").slice(0, 48)}-${hash}`;
}

function halfSet(
  half: readonly Family[],
  complete: Family | undefined,
  env: Variables,
): InvalidArgumentError {
  const names = half.map(({ name }) => name).join(" and ");
  const rows = half.map((family) => {
    const set = [...new Set([...family.marks, ...family.needs])].filter((name) => env[name]);
    return [family.name, `set: ${set.join(", ")}`, `missing: ${missingOf(family, env).join(", ")}`];
  });
  const field = half.flatMap((family) => missingOf(family, env))[0];
  return new InvalidArgumentError(
    {
      headline: `launcher variables: ${names} ${half.length === 1 ? "is" : "are"} only half set`,
      table: complete === undefined ? rows : [...rows, [complete.name, "complete"]],
      hint: "rank, size and local rank are taken from one launcher only: set the missing variables, or unset those that do not belong here",
    },
    { field },
  );
}

function refuseToDiffer(found: LauncherEnvironment, other: Family, env: Variables): void {
  const theirs = read(other, env);
  if (theirs.rank === found.rank && theirs.size === found.size) return;
  const row = ({ family, rank, size }: LauncherEnvironment) => [
    family,
    `rank ${rank}`,
    `size ${size}`,
  ];
  throw new InvalidArgumentError(
    {
      headline: `launcher variables: ${found.family} and ${theirs.family} disagree`,
      table: [row(found), row(theirs)],
      hint: "unset the variables of the launcher that did not start this process",
    },
    { field: "rank" },
  );
}
