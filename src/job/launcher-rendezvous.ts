/** The job of a process that a launcher started: the rank of this process, and the rendezvous that the variables lead to. */
import { createHash } from "node:crypto";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { getEnvironmentData, setEnvironmentData } from "node:worker_threads";
import type { JoinRequest } from "../api/backend-entry.ts";
import { ranksText } from "../api/error-text.ts";
import {
  BackendUnavailableError,
  CommAbortedError,
  InvalidArgumentError,
  RemoteRankError,
} from "../api/errors.ts";
import {
  type LauncherEnvironment,
  launcherEnvironment,
  secretVariable,
  type Variables,
} from "../api/world/launchers.ts";
import { type AgreedOptions, agreeOnBackend } from "./agreed-backend.ts";
import { fileRendezvous } from "./file-rendezvous.ts";
import { limits, signalError } from "./protocol.ts";
import type { Membership, Rendezvous } from "./rendezvous.ts";
import { tcpRendezvous } from "./tcp-rendezvous.ts";

/**
 * The rank of this process in a job of several, as its launcher gives it; `undefined` where it is a job of its own.
 *
 * @throws InvalidArgumentError for another size than the caller's, and as `launcherEnvironment`.
 */
export function launchedRank({ size }: JoinRequest): LauncherEnvironment | undefined {
  const environment = launcherEnvironment(launcherVariables());
  const found = environment?.size ?? 1;
  if (size !== undefined && size !== found) {
    throw new InvalidArgumentError(
      {
        headline: `connect: size: found ${size}, but ${environment?.family ?? "no launcher"} says ${found}`,
        hint: "leave size out, or start so many processes: twinccl launch -n SIZE script.mjs",
      },
      { size: found, field: "size" },
    );
  }
  return found === 1 ? undefined : environment;
}

/** A backend's part in the join of a launched job. */
export interface JoiningBackend<Found, Opened> {
  readonly name: string;
  /** The options that all ranks pass alike. */
  readonly options?: AgreedOptions | undefined;
  /**
   * Finds what this rank needs on its host, before the rendezvous. Throws `BackendUnavailableError` where it is missing: then no
   * rank of the job opens the backend.
   */
  find(): Promise<Found>;
  /** Opens this rank, where all ranks have found what they need. */
  open(membership: Membership, found: Found): Promise<Opened>;
}

/**
 * Joins the launcher's job, and opens this process's rank in it; leaves the job where that fails.
 *
 * @throws BackendUnavailableError, on every rank, where one of them lacks what the backend needs: all may go on to another backend.
 *   InvalidArgumentError where ranks pass different backends or options.
 */
export async function joinLaunched<Found, Opened>(
  environment: LauncherEnvironment,
  { timeoutMs, signal }: JoinRequest,
  { name, options, find, open }: JoiningBackend<Found, Opened>,
): Promise<Opened> {
  const { rank, size } = environment;
  const jobId = shortJobId(environment.jobId);
  const rendezvous = rendezvousFor(environment);
  const found = await find().catch(unavailability);
  let membership: Membership | undefined;
  try {
    membership = await rendezvous.join({ jobId, rank, size, deadlineMs: timeoutMs, signal });
    const missing = found instanceof BackendUnavailableError ? found : undefined;
    await agreeOnBackend(membership, name, missing, { timeoutMs, signal }, options);
    return await open(membership, found as Found);
  } catch (error) {
    await membership?.leave();
    if (signal?.aborted === true && error instanceof CommAbortedError) {
      const context = { address: rendezvous.address, jobId, rank, size };
      throw signalError("connect", context, signal);
    }
    throw membership === undefined ? error : unformedError(error, membership);
  }
}

/** The error of a wait in the store for ranks that are gone, in words of `connect`; any other error stays. */
function unformedError(error: unknown, { rank, size, jobId, lost }: Membership): unknown {
  // The failure of another rank to open has an error of its own.
  if (!(error instanceof RemoteRankError) || error.collective === undefined) return error;
  const { ranks } = error;
  const [first] = ranks;
  const loss = lost.find((each) => each.rank === first);
  const how = loss === undefined ? "has left" : `was lost (${loss.reason})`;
  return new RemoteRankError(
    {
      headline: `connect: rank ${first} ${how} before the job had formed`,
      hint: `look at the output of ${ranksText(ranks)}, and start the job again`,
    },
    { rank, size, comm: jobId, ranks, cause: error },
  );
}

/** The reason also goes to the other ranks; any other error is this rank's own. */
function unavailability(error: unknown): BackendUnavailableError {
  if (error instanceof BackendUnavailableError) return error;
  throw error;
}

/** A job id that is too long to be one keeps its beginning, and a hash of the rest. */
function shortJobId(jobId: string): string {
  if (Buffer.byteLength(jobId) <= limits.jobIdBytes) return jobId;
  const hash = createHash("sha256").update(jobId).digest("hex");
  return `${jobId.replace(/[^\x20-\x7e]/g, "_").slice(0, 48)}-${hash}`;
}

/**
 * The variables of this process. The secret is removed from `process.env`, so that child processes do not inherit it. Later
 * calls, including those in later worker threads, still receive it.
 */
function launcherVariables(): Variables {
  const given = process.env[secretVariable] ?? "";
  if (given !== "") setEnvironmentData(secretVariable, given);
  delete process.env[secretVariable];
  const secret = getEnvironmentData(secretVariable) as string | undefined;
  return { ...process.env, [secretVariable]: secret };
}

/**
 * The rendezvous of a launched process, by priority. First the launcher's store, then `TWINCCL_RENDEZVOUS_FILE`. If all ranks
 * are on this machine and no address, port or secret is set: a file in this user's temporary folder. Otherwise TCP at the
 * launcher's address, hosted by rank 0.
 *
 * @throws InvalidArgumentError when the address or the port is missing.
 *
 * @internal
 */
export function rendezvousFor(environment: LauncherEnvironment): Rendezvous {
  const { address, port, secret, storeHost, file, jobId, localSize, size } = environment;
  if (storeHost === "launcher") {
    return tcpRendezvous({
      address,
      port: port ?? missing(environment, "port"),
      secret,
      host: "other",
    });
  }
  if (file !== undefined) return fileRendezvous({ path: file, address: ownAddress(environment) });
  if (localSize === size && !environment.isNetworkChosen) {
    const user = process.getuid?.() ?? "user";
    const hash = createHash("sha256").update(jobId).digest("hex").slice(0, 16);
    const path = join(tmpdir(), `twinccl-${user}`, `${hash}.rendezvous`);
    return fileRendezvous({ path, isFolderOwn: true });
  }
  return tcpRendezvous({
    address: address ?? missing(environment, "address"),
    port: port ?? missing(environment, "port"),
    secret,
  });
}

/** With a file, only an address that was chosen for it counts: the file holds the rest. */
function ownAddress({ address, isNetworkChosen, localSize, size }: LauncherEnvironment) {
  return isNetworkChosen || localSize !== size ? address : undefined;
}

function missing({ family }: LauncherEnvironment, what: "address" | "port"): never {
  const name = `TWINCCL_${what.toUpperCase()}`;
  throw new InvalidArgumentError(
    {
      headline: `rendezvous: ${family} gives no ${what}, and ${name} is not set`,
      hint: `set ${name} to the same on every rank, or TWINCCL_RENDEZVOUS_FILE to a file that all of them see`,
    },
    { field: name },
  );
}
