/** Variables as launchers set them, each for one process of a job of several. */

/** Variables by name. */
export type Variables = Record<string, string | undefined>;

export const twinccl: Variables = {
  TWINCCL_RANK: "2",
  TWINCCL_SIZE: "4",
  TWINCCL_LOCAL_RANK: "2",
  TWINCCL_LOCAL_SIZE: "4",
  TWINCCL_JOB_ID: "launch-1",
  TWINCCL_STORE: "launcher",
  TWINCCL_ADDRESS: "127.0.0.1",
  TWINCCL_PORT: "4711",
  TWINCCL_SECRET: "0123456789abcdef",
};
export const torchrun: Variables = {
  RANK: "5",
  WORLD_SIZE: "8",
  LOCAL_RANK: "1",
  LOCAL_WORLD_SIZE: "4",
  MASTER_ADDR: "gpu1",
  MASTER_PORT: "29500",
  TORCHELASTIC_RUN_ID: "run",
  TORCHELASTIC_RESTART_COUNT: "1",
};
export const openmpi: Variables = {
  OMPI_COMM_WORLD_RANK: "3",
  OMPI_COMM_WORLD_SIZE: "4",
  OMPI_COMM_WORLD_LOCAL_RANK: "3",
  OMPI_COMM_WORLD_LOCAL_SIZE: "4",
  PMIX_NAMESPACE: "ns.1",
};
export const slurm: Variables = {
  SLURM_JOB_ID: "77",
  SLURM_STEP_ID: "3",
  SLURM_PROCID: "9",
  SLURM_NTASKS: "11",
  SLURM_LOCALID: "1",
  SLURM_NODEID: "2",
  SLURM_STEP_TASKS_PER_NODE: "4(x2),3",
  SLURM_STEP_NODELIST: "gpu[03-05],gpu9",
};
