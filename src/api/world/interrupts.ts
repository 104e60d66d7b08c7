/**
 * The table of waits that a program which hangs prints at Ctrl-C, before the process ends by the signal.
 *
 * A listener replaces the runtime's own answer to SIGINT, and cannot run while JavaScript does. So there is one only while
 * a call stands still, found open by two looks in a row, and only where the program has none. It is removed as the call
 * settles. After the table the signal is raised again.
 */
import { escaped } from "../error-text.ts";
import type { CommOp } from "../op.ts";

/** A world with ranks at work in this process. */
export interface AtWork {
  /** An operation that is open and awaited. */
  readonly awaited: CommOp | undefined;
  /** The waits of its ranks, ready to print. */
  interruptedText(): string;
}

interface SignalProcess {
  readonly pid: number;
  readonly stderr: { write(text: string, written: () => void): unknown };
  on(signal: "SIGINT", listener: () => void): unknown;
  removeListener(signal: "SIGINT", listener: () => void): unknown;
  listenerCount(signal: "SIGINT"): number;
  kill(pid: number, signal: "SIGINT"): unknown;
}

const lookMs = 250;

// Taken once: tests may put timers that stand still in their place later.
const { setTimeout: set } = globalThis;
const { process: runtime } = globalThis as { readonly process?: SignalProcess };

/** Worlds that are still referenced by others are looked at. */
const worlds = new Set<WeakRef<AtWork>>();
let isLooking = false;
/** Open at the last look. */
let seen = new Set<CommOp>();
/** The one for which there is a listener. */
let held: CommOp | undefined;

/** Prints what the ranks of a world wait for when the process is interrupted while they do; gives a way to stop that. */
export function tellWhenInterrupted(world: AtWork): () => void {
  if (typeof runtime?.kill !== "function") return () => undefined;
  const ref = new WeakRef(world);
  worlds.add(ref);
  if (!isLooking) lookLater();
  return () => void worlds.delete(ref);
}

function lookLater(): void {
  isLooking = true;
  const timer = set(look, lookMs) as { unref?(): void } | number;
  if (typeof timer === "object") timer.unref?.();
}

function look(): void {
  const open = new Set<CommOp>();
  for (const ref of worlds) {
    const world = ref.deref();
    if (world === undefined) worlds.delete(ref);
    else if (world.awaited !== undefined) open.add(world.awaited);
  }
  const still = [...open].find((op) => seen.has(op));
  if (still !== undefined && held === undefined) hold(still);
  seen = open;
  isLooking = worlds.size > 0;
  if (isLooking) lookLater();
}

function hold(op: CommOp): void {
  if (runtime === undefined || runtime.listenerCount("SIGINT") > 0) return;
  held = op;
  runtime.on("SIGINT", interrupted);
  op.whenSettled(() => {
    if (held === op) release();
  });
}

function release(): void {
  held = undefined;
  runtime?.removeListener("SIGINT", interrupted);
}

function interrupted(): void {
  release();
  const texts = [...worlds].flatMap((ref) => {
    const world = ref.deref();
    return world?.awaited === undefined ? [] : [world.interruptedText()];
  });
  // A listener that the program has added meanwhile decides what becomes of the process.
  const isAlone = runtime?.listenerCount("SIGINT") === 0;
  runtime?.stderr.write(`${escaped(texts.join("\n"))}\n`, () => {
    if (isAlone) runtime.kill(runtime.pid, "SIGINT");
  });
}
