/** The rendezvous at a file: rank 0 writes there where its store is, the others read it. */
import { randomBytes } from "node:crypto";
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { InvalidArgumentError, RendezvousError } from "../api/errors.ts";
import { pause } from "./async.ts";
import { isLoopback, type JoinArguments, joinArguments, shortText } from "./checks.ts";
import { RendezvousSession } from "./client.ts";
import {
  createRecord,
  type FileRecord,
  type FileState,
  filePath,
  format,
  makePrivateFolder,
  readRecord,
  removeRecord,
  stateOf,
  thisProcess,
} from "./file-record.ts";
import { type ErrorContext, signalError, storeError } from "./protocol.ts";
import type { Membership, Rendezvous } from "./rendezvous.ts";
import { hostLingersMs } from "./server.ts";
import { connectSession, hostStore, joinWithRetry, tryConnect } from "./tcp-rendezvous.ts";

/** Options of a rendezvous at a file. */
export interface FileRendezvousOptions {
  /** A file, or a folder that exists; in a folder every job has a file of its own. */
  readonly path: string;
  /** Where rank 0 listens (127.0.0.1); for ranks on other machines a name or address that they reach. */
  readonly address?: string | undefined;
  /** The folder of `path` is one that ranks create and that only their user may enter (false). */
  readonly isFolderOwn?: boolean | undefined;
}

const pollMs = 20;
/** Longest time of one attempt to reach the store of a file before the file is read again. */
const attemptMs = 1_000;

/**
 * A rendezvous at a file that only its user can read.
 *
 * Rank 0 hosts the store on a free port, creates a secret, and writes both into the file. It creates the file exclusively and
 * removes it when it leaves. No secret has to be handed around, and what holds for the rendezvous over TCP holds here. A file
 * is accepted only when it is a plain file of this user that no other user can read; links are refused.
 *
 * A file of an earlier run is *stale* if its creator has ended. That is the case if the machine has restarted, or the process
 * number is free or has another start time. Rank 0 replaces a stale file; the others wait until it has. A file of a running
 * process, or of another machine, of which that cannot be known, is refused by name.
 */
export function fileRendezvous(options: FileRendezvousOptions): Rendezvous {
  const path = shortText("fileRendezvous", "path", options.path, 4_096);
  return {
    address: path,
    join: async (joinOptions) => {
      const args = joinArguments(joinOptions);
      if (options.isFolderOwn === true) requireOwnFolder({ ...args, address: path });
      if (options.isFolderOwn === true && args.rank === 0) sweep(dirname(path));
      const file = filePath(path, args.jobId);
      return args.rank === 0 ? joinAsHost(file, args, options.address) : joinAsPeer(file, args);
    },
  };
}

/** In a folder that other users may write to, they can create the file that a rank needs to create. */
function requireOwnFolder(context: ErrorContext): void {
  const folder = dirname(context.address);
  const reason = makePrivateFolder(folder);
  if (reason === undefined) return;
  const hint =
    "only a folder of this user that no other user can enter (mode 0700) is used: remove what is there, or name another file by TWINCCL_RENDEZVOUS_FILE on every rank";
  throw storeError(`the folder ${folder} ${reason}`, hint, context);
}

/** Removes the stale files of a folder: each holds the secret of a job that was killed. */
function sweep(folder: string): void {
  for (const name of namesIn(folder)) {
    if (!name.endsWith(".rendezvous")) continue;
    const path = join(folder, name);
    try {
      const found = readRecord(path);
      if (isStale(found)) removeRecord(path, (at) => isSame(at, found));
    } catch {
      // Another process has removed it, or this one may not: it is no file of this job.
    }
  }
}

/** The names in a folder; of one that cannot be listed none: a rank needs no list, and fails by itself where it needs more. */
function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

async function joinAsHost(
  path: string,
  args: JoinArguments,
  address: string | undefined,
): Promise<Membership> {
  const { jobId, size, rank } = args;
  const context = { address: path, jobId, rank, size };
  const end = performance.now() + args.deadlineMs;
  const secret = randomBytes(32).toString("hex");
  const server = await hostStore({ secret, address }, args, context);
  const nonce = randomBytes(16).toString("hex");
  const creator = thisProcess();
  const record = { format, jobId, nonce, secret, creator, host: server.host, port: server.port };
  const isMine = (found: FileState): boolean =>
    found.kind === "record" && found.record.nonce === nonce;
  try {
    await claim(path, { ...record, format }, context, end, args.signal);
    try {
      const left = async (): Promise<void> => {
        await removeOwn(path, isMine);
        await server.whenEmpty(hostLingersMs);
        await server.close();
      };
      const rest = { ...args, deadlineMs: leftMs(end) };
      return await joinWithRetry({ address: path, jobId, left }, rest, (deadlineMs) =>
        connectSession(record, context, { ...args, deadlineMs }),
      );
    } catch (error) {
      await removeOwn(path, isMine);
      throw error;
    }
  } catch (error) {
    await server.close();
    throw error;
  }
}

function joinAsPeer(path: string, args: JoinArguments): Promise<Membership> {
  const left = (): Promise<void> => Promise.resolve();
  return joinWithRetry({ address: path, jobId: args.jobId, left }, args, (deadlineMs) =>
    findStore(path, args, performance.now() + deadlineMs),
  );
}

/** A session with the store of the file, once it names one. */
async function findStore(
  path: string,
  args: JoinArguments,
  end: number,
): Promise<RendezvousSession> {
  const { jobId, rank, size, signal } = args;
  const context = { address: path, jobId, rank, size };
  const absent = "there is no such file";
  let problem = absent;
  while (performance.now() < end) {
    if (signal?.aborted === true) throw signalError("join", context, signal);
    const found = readRecord(path);
    if (found.kind === "refused")
      throw storeError(`the file ${found.reason}`, found.hint ?? refusedHint, context);
    if (found.kind === "absent") problem = absent;
    if (found.kind === "unfinished") problem = "the file is not complete";
    if (found.kind === "record") {
      problem = recordFault(found.record, jobId) ?? "";
      if (problem === "") {
        // Once: the file may name another store by then.
        const outcome = await tryConnect(found.record, Math.min(leftMs(end), attemptMs), signal);
        if (outcome instanceof RendezvousSession) return outcome;
        if (outcome.hint !== undefined) throw storeError(outcome.reason, outcome.hint, context);
        problem = outcome.reason;
      }
    }
    await pause(pollMs, signal);
  }
  if (signal?.aborted === true) throw signalError("join", context, signal);
  throw new RendezvousError(
    {
      headline: `rendezvous at ${path} of job "${jobId}": rank 0 was not found within ${args.deadlineMs} ms: ${problem}`,
      hint: "rank 0 writes this file: see whether it runs, with the same path and job id",
    },
    { rank, size, comm: jobId, ranks: [0], address: path, missing: [0] },
  );
}

/** Creates the file, in place of a stale one. */
async function claim(
  path: string,
  record: FileRecord,
  context: ErrorContext,
  end: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  while (!tryWrite(path, () => createRecord(path, record))) {
    if (signal?.aborted === true) throw signalError("join", context, signal);
    const found = readRecord(path);
    if (found.kind === "refused")
      throw storeError(`the file ${found.reason}`, found.hint ?? refusedHint, context);
    if (found.kind === "record") refuseIfInUse(found.record, context);
    if (isStale(found) && tryWrite(path, () => removeRecord(path, (at) => isSame(at, found))))
      continue;
    if (performance.now() > end) {
      throw storeError("another process is writing the file", "see which process that is", context);
    }
    await pause(pollMs, signal);
  }
}

/** True for a file whose creator has ended, with or without a whole record. */
function isStale(found: FileState): boolean {
  if (found.kind === "record") return stateOf(found.record.creator) === "ended";
  return found.kind === "unfinished" && found.isOld;
}

/** True when the file now is the one that was found to be stale before. */
function isSame(now: FileState, before: FileState): boolean {
  if (now.kind === "record" && before.kind === "record") {
    return now.record.nonce === before.record.nonce;
  }
  return now.kind === "unfinished" && now.isOld && before.kind === "unfinished";
}

/** Removes this process's own file. One that cannot be removed is stale once the process has ended. */
async function removeOwn(path: string, isMine: (found: FileState) => boolean): Promise<void> {
  const end = performance.now() + attemptMs;
  try {
    while (!removeRecord(path, isMine) && performance.now() < end) await pause(pollMs);
  } catch {
    // The store hosted by this process ends in any case.
  }
}

function tryWrite<T>(path: string, write: () => T): T {
  try {
    return write();
  } catch (error) {
    throw new InvalidArgumentError(
      {
        headline: `rendezvous at ${path}: the file cannot be written: ${(error as Error).message}`,
        hint: `remove what is in its way, or give a file in a folder that exists, has room, and that only this user may write to, not as ${dirname(path)}`,
      },
      { field: "path", cause: error },
    );
  }
}

function refuseIfInUse({ creator, jobId }: FileRecord, context: ErrorContext): void {
  const state = stateOf(creator);
  if (state === "ended") return;
  const by = `process ${creator.pid} on ${creator.host}`;
  const what =
    jobId === context.jobId
      ? `rank 0 is taken by ${by}`
      : `the file belongs to the job "${jobId}" of ${by}`;
  const hint =
    state === "runs"
      ? "the first one stays; give this job another file, or a folder"
      : "whether that process runs cannot be seen from here: if that job is over, remove the file";
  throw new RendezvousError(
    { headline: `rendezvous at ${context.address} of job "${context.jobId}": ${what}`, hint },
    { rank: 0, size: context.size, comm: context.jobId, ranks: [0], address: context.address },
  );
}

/** Why a record cannot lead to the store of this job. */
function recordFault(
  { jobId, creator, host: storeHost }: FileRecord,
  expectedJobId: string,
): string | undefined {
  if (jobId !== expectedJobId) return `the file belongs to the job "${jobId}"`;
  if (stateOf(creator) === "ended") {
    return `the file is stale: its process ${creator.pid} on ${creator.host} has ended`;
  }
  if (creator.host !== thisProcess().host && isLoopback(storeHost)) {
    return `the store listens on ${storeHost} of ${creator.host} alone; give every rank an address of that machine which all reach`;
  }
  return undefined;
}

function leftMs(end: number): number {
  return Math.max(0, Math.round(end - performance.now()));
}

const refusedHint = "the file must be regular, owned by this user and readable by no other user";
