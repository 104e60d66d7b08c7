/** The parts of this machine that NCCL would use between GPUs, in words. */

/** A GPU, as far as the words are about it. */
interface Gpu {
  readonly index: number;
  /** True for each GPU with memory that it can reach, by index. */
  readonly peers: readonly boolean[];
  /** True when it can be part of a multicast object; null where that is not known. */
  readonly multicast: boolean | null;
}

/** In-switch reduction: whether NCCL may use it, and whether the GPUs could. */
export function nvlsState(env: NodeJS.ProcessEnv, gpus: readonly Gpu[]): string {
  const able = multicastText(gpus);
  const suffix = able === "" ? "" : ` (${able})`;
  const variable = env["NCCL_NVLS_ENABLE"];
  if (variable === undefined || variable === "") {
    return `off in worlds of nccl(): it sets NCCL_NVLS_ENABLE=0 unless nccl({ nvls: true }) asks for it${suffix}`;
  }
  if (variable === "0") {
    return `off: NCCL_NVLS_ENABLE=0${suffix}; nccl({ nvls: true }) is refused`;
  }
  return `NCCL_NVLS_ENABLE=${variable}, which nccl() changes to 0 unless nccl({ nvls: true }) asks for it${suffix}`;
}

function multicastText(gpus: readonly Gpu[]): string {
  if (gpus.length === 0) return "";
  const able = gpus.filter(({ multicast }) => multicast === true);
  if (able.length === gpus.length) return `${these(gpus)} multicast`;
  if (able.length > 0) {
    return `of these GPUs ${able.map(({ index }) => index).join(", ")} have multicast`;
  }
  const known = gpus.every(({ multicast }) => multicast === false);
  return known ? `${these(gpus)} no multicast` : "whether there is multicast is unknown";
}

function these(gpus: readonly Gpu[]): string {
  return gpus.length === 1 ? "this GPU has" : "these GPUs have";
}

/** GPUs that reach each other's memory, and NCCL's permission to use that; null where there are no two. */
export function p2pState(env: NodeJS.ProcessEnv, gpus: readonly Gpu[]): string | null {
  if (gpus.length < 2) return null;
  const pairs = (gpus.length * (gpus.length - 1)) / 2;
  const reaching = gpus.flatMap(({ index, peers }) =>
    gpus.filter((peer) => peer.index > index && peers[peer.index] && peer.peers[index]),
  ).length;
  const count = reaching === pairs ? "all" : reaching === 0 ? "no" : `${reaching} of ${pairs}`;
  const found = `${count} pairs of GPUs reach each other's memory`;
  const [disable, level] = [env["NCCL_P2P_DISABLE"], env["NCCL_P2P_LEVEL"]];
  if (disable !== undefined && disable !== "0")
    return `off: NCCL_P2P_DISABLE=${disable} (${found})`;
  return level === undefined ? found : `as far as NCCL_P2P_LEVEL=${level} (${found})`;
}
