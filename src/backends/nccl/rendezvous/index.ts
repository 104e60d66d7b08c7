/**
 * How the processes of a job come together: everything before NCCL's first call, in plain Node.
 *
 * `Rendezvous.join` waits until all ranks are there and gives a `Membership`: a small key-value store among the ranks
 * (`set`, `get`, `exchange`, `meet`), news of ranks whose process is gone (`onLost`), and the way into the next generation with
 * the survivors (`rejoin`). Rank 0 sets NCCL's unique id there, the others get it; signatures, device ids and split
 * colours are exchanged. No data of collectives passes here.
 *
 * `launcherEnvironment(launcherVariables())` tells which rank this process is, whoever launched it, and `rendezvousFor` where
 * it meets the others.
 *
 * While the process that hosts the place blocks its event loop, nobody is answered. What all ranks need before they block,
 * such as the unique id, is therefore best handed out by `exchange`, which answers all of them at the same moment; ranks
 * that block until they have met some others come together by `meet`.
 *
 * The place itself is a `StoreServer`: hosted by the launcher, which outlives every rank, or by rank 0.
 */
export { rendezvousFor } from "./choose.ts";
export { pause } from "./connect-session.ts";
export { WentOnError } from "./failures.ts";
export { launcherEnvironment, launcherVariables } from "./launcher-environment.ts";
export { limits } from "./limits.ts";
export { bootId } from "./process-identity.ts";
export type { GetOptions, Meeting, Membership } from "./rendezvous.ts";
export { StoreServer } from "./store-server.ts";
