/** Which host NCCL takes this process to be on: ranks on different ones may use the same GPU. */
import { hostname } from "node:os";

/** The variable that imitates another host counts before the machine's own name. */
export function ncclHost(): string {
  return process.env["NCCL_HOSTID"] ?? hostname();
}
