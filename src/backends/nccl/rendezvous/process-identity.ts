/** True while the process that left a file behind still runs. */
import { readFileSync, readlinkSync } from "node:fs";
import { hostname, uptime } from "node:os";

/** Distinguishes a process from every other, later ones with its number included. */
export interface ProcessIdentity {
  readonly host: string;
  /** Of this start of the machine: see `bootId`. */
  readonly boot: string;
  /** In which numbers of processes mean the same; empty where the system does not say. */
  readonly namespace: string;
  readonly pid: number;
  /** When it started, in ticks since the boot; empty where the system does not say. */
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
 * One of this start of this machine runs when its number is in use and, where the system says so, by a process that
 * started at the same time. One of this machine that was written down before the machine started has ended.
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
