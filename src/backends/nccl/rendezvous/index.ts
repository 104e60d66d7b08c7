/**
 * The rendezvous of a job's processes: everything before NCCL's first call, in plain Node.js.
 *
 * `Rendezvous.join` waits for all ranks and returns a `Membership`. It has a small key-value store (`set`, `get`, `exchange`,
 * `awaitBarriers`) and reports lost ranks (`onLost`). Survivors join the next generation with `rejoin`. Rank 0 sets NCCL's
 * unique id there, the others get it; signatures, device ids and split colours are exchanged. No data of collectives passes
 * here.
 *
 * `launcherEnvironment(launcherVariables())` gives the rank of this process, from any known launcher, and `rendezvousFor` its
 * rendezvous.
 *
 * While the process that hosts the store blocks its event loop, no request is answered. Values that all ranks need before they
 * block, such as the unique id, are therefore sent by `exchange`, which answers all ranks at once. Ranks that block until
 * others have arrived call `awaitBarriers` first.
 *
 * The store is a `StoreServer`: hosted by the launcher, which outlives every rank, or by rank 0.
 */

export { WentOnError } from "./errors.ts";
export { bootId } from "./file-record.ts";
export { launcherEnvironment, launcherVariables, rendezvousFor } from "./launchers.ts";
export { limits } from "./limits.ts";
export type { Barrier, GetOptions, Membership } from "./rendezvous.ts";
export { StoreServer } from "./server.ts";
