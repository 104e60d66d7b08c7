/** A process that is a job of its own, on a backend with all ranks in one process. */

import type { Attempt } from "../backend.ts";
import { UnsupportedError } from "../errors.ts";

interface Runtime {
  readonly process?: { readonly env?: Variables };
}

type Variables = Readonly<Record<string, string | undefined>>;

/** A starter of processes: it says their number in `size`, and sets the others too. */
interface Launcher {
  readonly by: string;
  readonly size: string;
  readonly others: readonly string[];
}

/** Those that `connect` understands, inner ones first. */
const launchers: readonly Launcher[] = [
  { by: "twinccl launch", size: "TWINCCL_SIZE", others: [] },
  {
    by: "torchrun",
    size: "WORLD_SIZE",
    others: ["RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"],
  },
  {
    by: "Open MPI",
    size: "OMPI_COMM_WORLD_SIZE",
    others: ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"],
  },
  {
    by: "the Slurm step",
    size: "SLURM_NTASKS",
    others: ["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_LOCALID"],
  },
];

/** From here on Slurm's steps are batch scripts and shells, which are not one process a task. */
const firstSpecialStep = 0xffff_fff0;

/** The launcher of this process, and the number of its ranks; `undefined` where it is unknown. */
function launch(): { readonly by: string; readonly size: number } | undefined {
  const env: Variables = (globalThis as Runtime).process?.env ?? {};
  const isSet = (name: string): boolean => env[name] !== undefined && env[name] !== "";
  const isStep = Number(env["SLURM_STEP_ID"]) < firstSpecialStep;
  for (const { by, size, others } of launchers) {
    if (!isStep && others.includes("SLURM_STEP_ID")) continue;
    const isMeant = Number(env[size]) >= 1 && others.every(isSet);
    if (isMeant) return { by, size: Number(env[size]) };
  }
  return undefined;
}

/**
 * Refuses to be one of several processes: each would be a job of one rank, and none would hear of the others.
 *
 * @throws UnsupportedError that names the number of ranks, and why backends before this one were not taken.
 */
export function assertAlone(
  backend: string,
  size: number | undefined,
  attempts: readonly Attempt[] = [],
): void {
  const launched = launch();
  const ranks = size ?? launched?.size ?? 1;
  if (ranks === 1 && (launched?.size ?? 1) === 1) return;
  const several = ranks === 1 ? launched?.size : ranks;
  const told = launched === undefined ? "" : `${launched.by} started ${launched.size} processes: `;
  throw new UnsupportedError(
    {
      headline: `connect: ${backend} with ${several} ranks: all its ranks live in one process`,
      table: attempts.map((attempt) => [attempt.backend, attempt.reason]),
      hint: `${told}use createWorld, or twinccl run FILE -n RANKS`,
    },
    { size: several, field: "size" },
  );
}
