// Ranks that pretend to be on different hosts, so that they talk through sockets. Called before NCCL is used.

/** Takes `--nodes N` from the command line; gives N, 1 when it is left out. */
export function imitateNodes() {
  const at = process.argv.indexOf("--nodes");
  const nodes = at < 0 ? 1 : Number(process.argv[at + 1]);
  if (nodes === 1) return nodes;
  const { TWINCCL_RANK, TWINCCL_SIZE } = process.env;
  const node = Math.floor((Number(TWINCCL_RANK) * nodes) / Number(TWINCCL_SIZE));
  // NCCL reads these when its first communicator is made.
  Object.assign(process.env, {
    NCCL_HOSTID: `node${node}`,
    NCCL_P2P_DISABLE: "1",
    NCCL_SHM_DISABLE: "1",
    NCCL_IB_DISABLE: "1",
  });
  return nodes;
}
