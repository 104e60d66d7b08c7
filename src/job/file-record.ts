/** The rendezvous file: its content, the conditions under which it is trusted, and the identity of its process. */
import { createHash } from "node:crypto";
import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  readlinkSync,
  readSync,
  rmSync,
  type Stats,
  statSync,
  writeFileSync,
} from "node:fs";
import { hostname, uptime } from "node:os";
import { join } from "node:path";
import { isOutOfFiles, outOfFilesHint } from "./connection.ts";

/** The address and the secret of a job's store. */
export interface FileRecord {
  readonly format: typeof format;
  readonly jobId: string;
  /** Distinguishes this file from every other one of the same job. */
  readonly nonce: string;
  readonly host: string;
  readonly port: number;
  readonly secret: string;
  /** The process of rank 0. */
  readonly creator: ProcessIdentity;
}

/** First words of every such file. */
export const format = "twinccl rendezvous 1";

/** The beginning of every such file; a file that begins otherwise belongs to another program, and is never removed. */
const beginning = '{"format":"twinccl rendezvous ';

const maxBytes = 4_096;
/** A file that was not completed for so long was left behind by a process that ended meanwhile. */
const writingMs = 5_000;

/** The object at a path. */
export type FileState =
  | { readonly kind: "absent" }
  | { readonly kind: "record"; readonly record: FileRecord }
  /** Not complete yet. */
  | { readonly kind: "unfinished"; readonly isOld: boolean }
  /** Something that must not be used; why, and the next step where the file is not at fault. */
  | { readonly kind: "refused"; readonly reason: string; readonly hint?: string | undefined };

/** The file itself: of a folder, one in it that is named after the job. */
export function filePath(path: string, jobId: string): string {
  if (!isFolder(path)) return path;
  const hash = createHash("sha256").update(jobId).digest("hex").slice(0, 12);
  return join(path, `twinccl-${jobId.replace(/[^\w.-]/g, "_").slice(0, 40)}-${hash}.rendezvous`);
}

/**
 * Creates a folder that only this user may enter, where none is.
 *
 * @returns The reason not to use the existing file; `undefined` for a valid one.
 */
export function makePrivateFolder(path: string): string | undefined {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== "EEXIST") return `cannot be created: ${message}`;
  }
  const stat = lstatSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return "was removed";
  return stat.isDirectory() ? accessFault(stat, "entered") : `is ${kindOf(stat)}`;
}

/** True when there is a folder. One that cannot be read is none: opening the path gives the error. */
function isFolder(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  } catch {
    return false;
  }
}

/** Reads the file; follows no link, and accepts only a file that this user wrote and no other user can read. */
export function readRecord(path: string): FileState {
  let file: number;
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") return { kind: "absent" };
    const reason = code === "ELOOP" ? "is a symbolic link" : `cannot be opened: ${message}`;
    return { kind: "refused", reason, hint: isOutOfFiles(code) ? outOfFilesHint : undefined };
  }
  try {
    const stat = fstatSync(file);
    const reason = fileFault(stat);
    if (reason !== undefined) return { kind: "refused", reason };
    const bytes = Buffer.alloc(maxBytes);
    const text = bytes.toString("utf8", 0, readSync(file, bytes, 0, maxBytes, 0));
    if (!text.startsWith(beginning.slice(0, text.length))) {
      return { kind: "refused", reason: "holds something else than a rendezvous" };
    }
    const record = parse(text);
    const isOld = Date.now() - stat.mtimeMs > writingMs;
    // No rank gives it a second name: another user may have put it here.
    if (record === undefined || stat.nlink !== 1) return { kind: "unfinished", isOld };
    return { kind: "record", record };
  } finally {
    closeSync(file);
  }
}

/** Creates the file with the record in it; false when there is one already. Where it cannot be written, none is left. */
export function createRecord(path: string, record: FileRecord): boolean {
  let file: number;
  try {
    file = openSync(path, "wx", 0o600);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
  try {
    // Of a full disk a single write may give a part.
    writeFileSync(file, `${JSON.stringify(record)}\n`);
    return true;
  } catch (error) {
    rmSync(path, { force: true });
    throw error;
  } finally {
    closeSync(file);
  }
}

/**
 * Takes a file away if it is still the one that was judged; false when another process is about to take it away.
 *
 * A path that was examined may lead to a new file when it is removed. So the remover holds a lock meanwhile, a file of its own;
 * and a creator never replaces one. The file that is examined under the lock is thus the one that is removed.
 */
export function removeRecord(path: string, isJudged: (found: FileState) => boolean): boolean {
  const lock = `${path}.lock`;
  if (!takeLock(lock)) return false;
  try {
    if (isJudged(readRecord(path))) rmSync(path, { force: true });
    return true;
  } finally {
    rmSync(lock, { force: true });
  }
}

/** A lock is held only briefly, within one turn of the event loop. An old lock belongs to a killed process. */
function takeLock(lock: string): boolean {
  try {
    closeSync(openSync(lock, "wx", 0o600));
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
  const stat = lstatSync(lock, { throwIfNoEntry: false });
  if (stat === undefined) return false;
  // No rank leaves anything else there, and only its owner may be able to remove it.
  const reason = stat.isFile() ? accessFault(stat, "read") : `is ${kindOf(stat)}`;
  if (reason !== undefined) throw new Error(`its lock ${lock} ${reason}`);
  if (Date.now() - stat.mtimeMs > writingMs) rmSync(lock, { force: true });
  return false;
}

function fileFault(stat: Stats): string | undefined {
  if (!stat.isFile()) return "is no file";
  const reason = accessFault(stat, "read");
  return reason ?? (stat.size > maxBytes ? "is too large for a rendezvous" : undefined);
}

/** The access that users other than this process's have to it. */
function accessFault({ uid, mode }: Stats, verb: "read" | "entered"): string | undefined {
  const user = process.getuid?.();
  if (user === undefined) return undefined;
  if (uid !== user) return `belongs to user ${uid}`;
  return (mode & 0o077) === 0 ? undefined : `can be ${verb} by other users`;
}

function kindOf(stat: Stats): string {
  if (stat.isSymbolicLink()) return "a symbolic link";
  if (stat.isDirectory()) return "a folder";
  return stat.isFile() ? "a file" : "a device or pipe";
}

function parse(text: string): FileRecord | undefined {
  if (!text.endsWith("\n")) return undefined;
  try {
    const record = JSON.parse(text) as FileRecord;
    return record.format === format && isWhole(record) ? record : undefined;
  } catch {
    return undefined;
  }
}

/** True if every field is valid. */
function isWhole({ jobId, nonce, secret, host, port, creator }: FileRecord): boolean {
  const { boot, namespace, pid, started, atMs } = creator;
  const texts: readonly unknown[] = [jobId, nonce, secret, host, creator.host];
  return (
    [...texts, boot, namespace, started].every((text) => typeof text === "string") &&
    [port, pid, atMs].every(Number.isSafeInteger) &&
    port > 0 &&
    port < 65_536
  );
}

/** Distinguishes a process from every other, later ones with its number included. */
export interface ProcessIdentity {
  readonly host: string;
  /** Of this start of the machine: see `bootId`. */
  readonly boot: string;
  /** The namespace of process numbers; empty where the system has none. */
  readonly namespace: string;
  readonly pid: number;
  /** When it started, in ticks since the boot; empty where the system has no such fact. */
  readonly started: string;
  /** When the identity was written down, in milliseconds since 1970. */
  readonly atMs: number;
}

/** The identity of this process. */
export function thisProcess(): ProcessIdentity {
  return {
    host: hostname(),
    boot: bootId(),
    namespace: orEmpty(() => readlinkSync("/proc/self/ns/pid")),
    pid: process.pid,
    started: startOf("self"),
    atMs: Date.now(),
  };
}

/** Distinguishes this start of the machine, and machines of the same name; empty where the system has no such facts. */
export function bootId(): string {
  return orEmpty(() => readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim());
}

/**
 * The state of that process: `unknown` for one of another machine or container.
 *
 * A process of this boot runs if its number is in use and, where the system reports it, its start time is equal. One of this
 * machine that was written down before the machine started has ended.
 */
export function stateOf(identity: ProcessIdentity): "runs" | "ended" | "unknown" {
  const here = thisProcess();
  if (identity.host !== here.host) return "unknown";
  if (identity.boot !== here.boot) {
    return identity.atMs < Date.now() - uptime() * 1_000 ? "ended" : "unknown";
  }
  if (identity.namespace !== here.namespace) return "unknown";
  if (!isInUse(identity.pid)) return "ended";
  const started = startOf(String(identity.pid));
  return started !== "" && identity.started !== "" && started !== identity.started
    ? "ended"
    : "runs";
}

function isInUse(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** The 22nd field of its `stat`; the name before it may hold spaces and brackets. */
function startOf(pid: string): string {
  return orEmpty(() => {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? "";
  });
}

function orEmpty(read: () => string): string {
  try {
    return read();
  } catch {
    return "";
  }
}
