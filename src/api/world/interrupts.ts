/**
 * Prints the table of waits of a hung program at Ctrl-C, before the signal ends the process.
 *
 * A listener for SIGINT replaces the default action, and cannot run while JavaScript runs. The module therefore installs one
 * only for a call that two successive checks find open, and only in programs without a listener. Two turns after the call
 * settles the listener is removed: a signal sent during a computation arrives within these turns, and one in the microseconds of
 * the removal is lost. After printing, the signal is raised again.
 */
import { escaped } from "../error-text.ts";
import { nextTurn, setOwnTimer } from "../ledger/turns.ts";
import type { Operation } from "../op.ts";
import { runtimeProcess } from "../runtime-process.ts";

/** A world with running ranks in this process. */
export interface ActiveWorld {
  /** One open, awaited operation, if any. */
  readonly awaited: Operation | undefined;
  /** The waits of its ranks, ready to print. */
  interruptedText(): string;
}

const checkEveryMs = 250;

/** `undefined` where the runtime has no process: no listener is installed there. */
const runtime = runtimeProcess() as (typeof globalThis)["process"] | undefined;

/** An active world, as long as it is in memory. */
type Entry = Pick<WeakRef<ActiveWorld>, "deref">;

const entries = new Set<Entry>();
let isCheckScheduled = false;
/** Operations open at the last check. */
let openAtLastCheck = new Set<Operation>();
/** The operation that keeps the listener installed. */
let listeningFor: Operation | undefined;

/**
 * Prints the waits of a world's ranks when SIGINT interrupts them. Returns the function that ends this. A world that programs
 * may drop (`dropped`) is referenced weakly. A run is not: the monitor keeps it in memory to its end, and a new WeakRef holds its
 * target until the end of the turn, in which short runs follow each other.
 */
export function reportOnInterrupt(world: ActiveWorld, dropped = false): () => void {
  if (typeof runtime?.kill !== "function") return () => undefined;
  const entry: Entry = dropped ? new WeakRef(world) : { deref: () => world };
  entries.add(entry);
  if (!isCheckScheduled) scheduleCheck();
  return () => void entries.delete(entry);
}

function scheduleCheck(): void {
  isCheckScheduled = true;
  setOwnTimer(checkOpenCalls, checkEveryMs, false);
}

function checkOpenCalls(): void {
  const open = new Set<Operation>();
  for (const entry of entries) {
    const world = entry.deref();
    if (world === undefined) entries.delete(entry);
    const awaited = world?.awaited;
    if (awaited !== undefined) open.add(awaited);
  }
  const still = [...open].find((op) => openAtLastCheck.has(op));
  if (still !== undefined && listeningFor === undefined) installListener(still);
  openAtLastCheck = open;
  isCheckScheduled = entries.size > 0;
  if (isCheckScheduled) scheduleCheck();
}

function installListener(op: Operation): void {
  if (runtime === undefined || runtime.listenerCount("SIGINT") > 0) return;
  listeningFor = op;
  runtime.on("SIGINT", onInterrupt);
  // A signal sent while JavaScript runs is delivered in the next turn.
  op.whenSettled(() =>
    nextTurn(() =>
      nextTurn(() => {
        if (listeningFor === op) removeListener();
      }),
    ),
  );
}

function removeListener(): void {
  listeningFor = undefined;
  runtime?.removeListener("SIGINT", onInterrupt);
}

function onInterrupt(): void {
  removeListener();
  const texts = [...entries].flatMap((entry) => {
    const world = entry.deref();
    return world?.awaited === undefined ? [] : [world.interruptedText()];
  });
  // If the program has added a listener meanwhile, that listener decides how the process ends.
  const isAlone = runtime?.listenerCount("SIGINT") === 0;
  runtime?.stderr.write(`${escaped(texts.join("\n"))}\n`, () => {
    if (isAlone) runtime.kill(runtime.pid, "SIGINT");
  });
}
