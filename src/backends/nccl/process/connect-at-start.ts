/** When NCCL connects the ranks of a job for collective calls. */
import { assertReachesNccl } from "./variables.ts";

const variable = "NCCL_RUNTIME_CONNECT";

/**
 * Has NCCL connect them while it starts, which has a deadline. By itself it does so, since 2.22, in the first call that
 * takes a ring or a tree, and waits there for the other ranks on the thread that makes the call. A value that the user has set
 * stays. NCCL reads it once per process.
 *
 * @throws UnsupportedError on a worker thread, from which variables do not reach NCCL.
 */
export function connectAtStart(env = process.env): void {
  // NCCL takes an empty value for none.
  if ((env[variable] ?? "") !== "") return;
  assertReachesNccl([variable]);
  env[variable] = "0";
}
