/** The variables with which launchers tell a process its place, one table row a launcher. */
import { InvalidArgumentError } from "../../../api/index.ts";
import { firstHost, isStep, slurmPort, tasksOnNode } from "./slurm.ts";

/** Variables of a process. */
export type Variables = Readonly<Record<string, string | undefined>>;

/** Launchers with known variables, in the order in which they are looked for. */
export type FamilyName = "twinccl" | "torchrun" | "openmpi" | "slurm";

/** The variables of one family, as text. */
export interface FamilyTexts {
  readonly rank: string;
  readonly size: string;
  readonly localRank: string;
  /** The variable that holds the number of ranks on this machine. */
  readonly localSize: string | undefined;
}

/** A launcher's variables. */
export interface Family {
  readonly name: FamilyName;
  /** Variables that only this launcher sets: one of them, and the family was meant. */
  readonly marks: readonly string[];
  /** The variables that the family needs to count. */
  readonly needs: readonly string[];
  readonly texts: FamilyTexts;
  /** Facts that this family does not have in one variable of its own. */
  readonly jobId: (env: Variables) => string;
  readonly address: (env: Variables) => string | undefined;
  readonly port: (env: Variables) => number | undefined;
  readonly localSize?: (env: Variables) => number | undefined;
}

/** A variable that is set to something. */
export function textOf(env: Variables, name: string): string | undefined {
  const value = env[name];
  return value === undefined || value === "" ? undefined : value;
}

/** A whole number out of a variable. */
export function numberOf(env: Variables, name: string, least: number, most: number): number {
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
export const families: readonly Family[] = [
  {
    name: "twinccl",
    marks: ["TWINCCL_RANK", "TWINCCL_SIZE", "TWINCCL_LOCAL_RANK", "TWINCCL_LOCAL_SIZE"],
    needs: ["TWINCCL_RANK", "TWINCCL_SIZE", "TWINCCL_LOCAL_RANK", "TWINCCL_JOB_ID"],
    texts: {
      rank: "TWINCCL_RANK",
      size: "TWINCCL_SIZE",
      localRank: "TWINCCL_LOCAL_RANK",
      localSize: "TWINCCL_LOCAL_SIZE",
    },
    jobId: (env) => textOf(env, "TWINCCL_JOB_ID") ?? "",
    address: () => "127.0.0.1",
    port: () => undefined,
  },
  {
    name: "torchrun",
    marks: ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
    needs: ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"],
    texts: {
      rank: "RANK",
      size: "WORLD_SIZE",
      localRank: "LOCAL_RANK",
      localSize: "LOCAL_WORLD_SIZE",
    },
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
    name: "openmpi",
    marks: ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
    needs: ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
    texts: {
      rank: "OMPI_COMM_WORLD_RANK",
      size: "OMPI_COMM_WORLD_SIZE",
      localRank: "OMPI_COMM_WORLD_LOCAL_RANK",
      localSize: "OMPI_COMM_WORLD_LOCAL_SIZE",
    },
    jobId: (env) =>
      `openmpi-${textOf(env, "PMIX_NAMESPACE") ?? textOf(env, "OMPI_MCA_ess_base_jobid") ?? "job"}`,
    address: () => undefined,
    port: () => undefined,
  },
  {
    name: "slurm",
    marks: [],
    needs: ["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
    texts: {
      rank: "SLURM_PROCID",
      size: "SLURM_NTASKS",
      localRank: "SLURM_LOCALID",
      localSize: undefined,
    },
    jobId: (env) => `slurm-${env["SLURM_JOB_ID"]}.${env["SLURM_STEP_ID"]}`,
    address: (env) => firstHost(textOf(env, "SLURM_STEP_NODELIST")),
    port: (env) => slurmPort(`${env["SLURM_JOB_ID"]}.${env["SLURM_STEP_ID"]}`),
    localSize: (env) => tasksOnNode(env["SLURM_STEP_TASKS_PER_NODE"], env["SLURM_NODEID"]),
  },
];

/** True when variables of that launcher are there and were meant for this process. */
export function isMeant({ name, marks }: Family, env: Variables): boolean {
  if (name === "slurm") return isStep(textOf(env, "SLURM_STEP_ID"));
  return marks.some((mark) => textOf(env, mark) !== undefined);
}
