/**
 * The rank of this process, from the variables of the launcher that started it. No other file reads them.
 *
 * Rank, size and local rank come from one launcher, never from two. The first complete family counts, in this order: `twinccl
 * launch`, torchrun, Open MPI, a Slurm step. An inner launcher is found before the outer one that usually starts it (torchrun
 * or mpirun inside Slurm, `twinccl launch` inside anything). A half-set family before the selected one is an error with its
 * missing variables. Complete but contradictory families of torchrun and Open MPI are an error too.
 */
import { InvalidArgumentError } from "../errors.ts";

/** The launcher's facts about a process. */
export interface LauncherEnvironment {
  readonly family: FamilyName;
  readonly rank: number;
  readonly size: number;
  /** Rank among those on this machine: the index of its device. */
  readonly localRank: number;
  /** Number of ranks on this machine; `undefined` when the launcher does not set it. */
  readonly localSize: number | undefined;
  readonly jobId: string;
  /** Where the store listens, or is to listen; `TWINCCL_ADDRESS` and `TWINCCL_PORT` count before the launcher's. */
  readonly address: string | undefined;
  readonly port: number | undefined;
  /** `TWINCCL_SECRET`. */
  readonly secret: string | undefined;
  /** The host of the store: `twinccl launch` itself, or rank 0 under other launchers. */
  readonly storeHost: "launcher" | "rank 0";
  /** `TWINCCL_RENDEZVOUS_FILE`: a file or folder for the rendezvous instead. */
  readonly file: string | undefined;
  /** True when the address, the port or the secret was given by a variable of twinccl. */
  readonly isNetworkChosen: boolean;
}

/** Most ranks of a job. */
export const maxProcesses: number = 2 ** 16;

/** The variable that holds the job's secret. */
export const secretVariable = "TWINCCL_SECRET";

/**
 * Reads the variables of a launcher; `undefined` when no launcher has set any.
 *
 * @throws InvalidArgumentError for a variable that is no number or out of range, a family that is half set, or two that
 *   disagree.
 */
export function launcherEnvironment(env: Variables): LauncherEnvironment | undefined {
  const present = families.filter((family) => isPresent(family, env));
  const at = present.findIndex((family) => missingOf(family, env).length === 0);
  const half = at < 0 ? present : present.slice(0, at);
  if (half.length > 0) throw incompleteError(half, at < 0 ? undefined : present[at], env);
  const family = present[at];
  if (family === undefined) return undefined;
  const found = read(family, env);
  for (const other of present.slice(at + 1)) {
    // Slurm is commonly around another launcher; two others are not around each other.
    const isBeside = family.name === "torchrun" && other.name === "Open MPI";
    if (isBeside && missingOf(other, env).length === 0) refuseConflict(found, other, env);
  }
  return found;
}

function missingOf({ needs }: LauncherFamily, env: Variables): string[] {
  return needs.filter((name) => textOf(env, name) === undefined);
}

function read(family: LauncherFamily, env: Variables): LauncherEnvironment {
  const size = numberOf(env, family.size, 1, maxProcesses);
  const rank = numberOf(env, family.rank, 0, size - 1);
  const { localSize: name = "" } = family;
  const hasLocalSize = textOf(env, name) !== undefined;
  const localSize = hasLocalSize ? numberOf(env, name, 1, size) : family.ranksHere?.(env);
  const localRank = numberOf(env, family.localRank, 0, (localSize ?? size) - 1);
  const isOwn = family.name === "twinccl launch";
  const given = ["TWINCCL_ADDRESS", "TWINCCL_PORT", secretVariable];
  const hasPort = textOf(env, "TWINCCL_PORT") !== undefined;
  return {
    ...{ family: family.name, rank, size, localRank, localSize, jobId: family.jobId(env) },
    address: withoutBrackets(textOf(env, "TWINCCL_ADDRESS") ?? family.address?.(env)),
    port: hasPort ? numberOf(env, "TWINCCL_PORT", 1, 65_535) : family.port?.(env),
    secret: textOf(env, secretVariable),
    storeHost: isOwn ? storeHostOf(env) : "rank 0",
    file: textOf(env, "TWINCCL_RENDEZVOUS_FILE"),
    isNetworkChosen: given.some((name) => textOf(env, name) !== undefined),
  };
}

/** The host of the store of `twinccl launch`, or of a launcher that sets its variables. */
function storeHostOf(env: Variables): LauncherEnvironment["storeHost"] {
  const text = textOf(env, "TWINCCL_STORE");
  if (text === undefined) return "rank 0";
  if (text === "launcher") return "launcher";
  throw new InvalidArgumentError(
    {
      headline: `launcher variable TWINCCL_STORE: found "${text}", needs launcher`,
      hint: "leave it unset where rank 0 hosts the store",
    },
    { field: "TWINCCL_STORE" },
  );
}

/** An address of IPv6 in brackets, as in URLs, without them; any other text as it is. */
export function withoutBrackets<T extends string | undefined>(address: T): T {
  return address?.replace(/^\[(.*:.*)\]$/, "$1") as T;
}

function incompleteError(
  half: readonly LauncherFamily[],
  complete: LauncherFamily | undefined,
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

function refuseConflict(found: LauncherEnvironment, other: LauncherFamily, env: Variables): void {
  const second = read(other, env);
  if (second.rank === found.rank && second.size === found.size) return;
  const row = ({ family, rank, size }: LauncherEnvironment) => [
    family,
    `rank ${rank}`,
    `size ${size}`,
  ];
  throw new InvalidArgumentError(
    {
      headline: `launcher variables: ${found.family} and ${second.family} disagree`,
      table: [row(found), row(second)],
      hint: "unset the variables of the launcher that did not start this process",
    },
    { field: "rank" },
  );
}

/** Variables of a process. */
export type Variables = Readonly<Record<string, string | undefined>>;

/** Launchers with known variables, in the order in which they are looked for. */
type FamilyName = "twinccl launch" | "torchrun" | "Open MPI" | "Slurm";

/** A launcher's variables. */
interface LauncherFamily {
  readonly name: FamilyName;
  /** Variables that only this launcher sets: any of them shows that it started this process. */
  readonly marks: readonly string[];
  /** The variables that the family needs to count. */
  readonly needs: readonly string[];
  /** The variables of the rank, of the number of ranks, and of both on this machine. */
  readonly rank: string;
  readonly size: string;
  readonly localRank: string;
  readonly localSize?: string;
  /** Facts that this family does not have in one variable of its own. */
  readonly jobId: (env: Variables) => string;
  readonly address?: (env: Variables) => string | undefined;
  readonly port?: (env: Variables) => number | undefined;
  readonly ranksHere?: (env: Variables) => number | undefined;
}

/** A variable that is set to something. */
function textOf(env: Variables, name: string): string | undefined {
  const value = env[name];
  return value === undefined || value === "" ? undefined : value;
}

/** A whole number out of a variable. */
function numberOf(env: Variables, name: string, least: number, most: number): number {
  const text = textOf(env, name) ?? "";
  const value = Number(text);
  if (/^\d{1,10}$/.test(text) && value >= least && value <= most) return value;
  throw new InvalidArgumentError(
    {
      headline: `launcher variable ${name}: found "${text}", needs a whole number in ${least}..${most}`,
      hint: "the launcher sets it; a value of an older shell may have stayed behind",
    },
    { field: name },
  );
}

/** Every family; the first complete one counts. */
const families: readonly LauncherFamily[] = [
  {
    name: "twinccl launch",
    marks: ["TWINCCL_RANK", "TWINCCL_SIZE", "TWINCCL_LOCAL_RANK", "TWINCCL_LOCAL_SIZE"],
    needs: ["TWINCCL_RANK", "TWINCCL_SIZE", "TWINCCL_LOCAL_RANK", "TWINCCL_JOB_ID"],
    rank: "TWINCCL_RANK",
    size: "TWINCCL_SIZE",
    localRank: "TWINCCL_LOCAL_RANK",
    localSize: "TWINCCL_LOCAL_SIZE",
    jobId: (env) => textOf(env, "TWINCCL_JOB_ID") ?? "",
    address: () => "127.0.0.1",
  },
  {
    name: "torchrun",
    marks: ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
    needs: ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"],
    rank: "RANK",
    size: "WORLD_SIZE",
    localRank: "LOCAL_RANK",
    localSize: "LOCAL_WORLD_SIZE",
    // The default run id of torchrun is always "none"; the leader distinguishes two such jobs.
    jobId: (env) => {
      const run = textOf(env, "TORCHELASTIC_RUN_ID") ?? "none";
      const restart = textOf(env, "TORCHELASTIC_RESTART_COUNT") ?? "0";
      return `torchrun-${run}-${env["MASTER_ADDR"]}:${env["MASTER_PORT"]}-restart-${restart}`;
    },
    address: (env) => env["MASTER_ADDR"],
    // On MASTER_PORT itself torchrun's own agent may be listening.
    port: (env) => numberOf(env, "MASTER_PORT", 1, 65_534) + 1,
  },
  {
    name: "Open MPI",
    marks: ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
    needs: ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
    rank: "OMPI_COMM_WORLD_RANK",
    size: "OMPI_COMM_WORLD_SIZE",
    localRank: "OMPI_COMM_WORLD_LOCAL_RANK",
    localSize: "OMPI_COMM_WORLD_LOCAL_SIZE",
    jobId: (env) =>
      `openmpi-${textOf(env, "PMIX_NAMESPACE") ?? textOf(env, "OMPI_MCA_ess_base_jobid") ?? "job"}`,
  },
  {
    name: "Slurm",
    marks: [],
    needs: ["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
    rank: "SLURM_PROCID",
    size: "SLURM_NTASKS",
    localRank: "SLURM_LOCALID",
    jobId: (env) => `slurm-${env["SLURM_JOB_ID"]}.${env["SLURM_STEP_ID"]}`,
    address: (env) => firstHost(textOf(env, "SLURM_STEP_NODELIST")),
    port: (env) => slurmPort(`${env["SLURM_JOB_ID"]}.${env["SLURM_STEP_ID"]}`),
    ranksHere: (env) => tasksOnNode(env["SLURM_STEP_TASKS_PER_NODE"], env["SLURM_NODEID"]),
  },
];

/** True when variables of that launcher are there and were meant for this process. */
function isPresent({ name, marks }: LauncherFamily, env: Variables): boolean {
  if (name === "Slurm") return isStep(textOf(env, "SLURM_STEP_ID"));
  return marks.some((mark) => textOf(env, mark) !== undefined);
}

/** From here on step numbers stand for the batch script, an interactive shell and the like. */
const firstSpecialStep = 0xffff_fff0;

/**
 * True for the number of a step that `srun` started. A batch script and an interactive shell see most of Slurm's variables
 * too, but are not one process a task.
 */
function isStep(stepId: string | undefined): boolean {
  return stepId !== undefined && /^\d+$/.test(stepId) && Number(stepId) < firstSpecialStep;
}

/** The first host of a list such as `gpu[03-05,9],login1`. */
function firstHost(nodes: string | undefined): string | undefined {
  return nodes?.replace(/\[([^\],-]*)[^\]]*\]/g, "$1").split(",")[0] || undefined;
}

/** The number of tasks on a node out of a list such as `4(x2),3`: 4 on nodes 0 and 1, 3 on node 2. */
function tasksOnNode(tasks: string | undefined, nodeId: string | undefined): number | undefined {
  let node = Number(nodeId ?? "NaN");
  for (const part of tasks?.split(",") ?? []) {
    const [, count, times = "1"] = /^(\d+)(?:\(x(\d+)\))?$/.exec(part) ?? [];
    if (count === undefined) return undefined;
    if (node < Number(times)) return Number(count);
    node -= Number(times);
  }
  return undefined;
}

/** A port that all tasks of a step agree on without talking, in 20000..29999. */
function slurmPort(step: string): number {
  let hash = 0;
  for (const letter of step) hash = (hash * 31 + letter.charCodeAt(0)) % 10_000;
  return 20_000 + hash;
}
