/**
 * The table of waits that a program which hangs prints at Ctrl-C, before the process ends by the signal.
 *
 * A listener replaces the runtime's own answer to SIGINT, and cannot run while JavaScript does. So there is one only while
 * a call stands still, found open by two looks in a row, and only where the program has none. It is removed two turns after
 * the call settles, in which a signal arrives that came while a rank computed. After the table the signal is raised again.
 */
import { escaped } from "../error-text.ts";
import { nextTurn, setOwnTimer } from "../ledger/deadlock/event-loop.ts";
import type { CommOp } from "../op.ts";

/** A world with ranks at work in this process. */
export interface ActiveWorld {
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

const { process: runtime } = globalThis as { readonly process?: SignalProcess };

/** A world at work, which is not kept in memory from the first look on. */
class Entry {
  #fresh: ActiveWorld | undefined;
  #ref: WeakRef<ActiveWorld> | undefined;

  constructor(world: ActiveWorld) {
    this.#fresh = world;
  }

  get world(): ActiveWorld | undefined {
    return this.#fresh ?? this.#ref?.deref();
  }

  /** A new WeakRef keeps its target until the end of the turn, so that short runs have none. */
  weaken(): void {
    if (this.#fresh === undefined) return;
    this.#ref = new WeakRef(this.#fresh);
    this.#fresh = undefined;
  }
}

const entries = new Set<Entry>();
let isLooking = false;
/** Open at the last look. */
let seen = new Set<CommOp>();
/** The one for which there is a listener. */
let held: CommOp | undefined;

/**
 * Prints the waits of a world's ranks when the process is interrupted while they wait; gives a way to stop that. A world that
 * may be `dropped` without it is not kept in memory.
 */
export function reportOnInterrupt(world: ActiveWorld, dropped = false): () => void {
  if (typeof runtime?.kill !== "function") return () => undefined;
  const entry = new Entry(world);
  if (dropped) entry.weaken();
  entries.add(entry);
  if (!isLooking) lookLater();
  return () => void entries.delete(entry);
}

function lookLater(): void {
  isLooking = true;
  setOwnTimer(look, lookMs, false);
}

function look(): void {
  const open = new Set<CommOp>();
  for (const entry of entries) {
    entry.weaken();
    const { world } = entry;
    if (world === undefined) entries.delete(entry);
    else if (world.awaited !== undefined) open.add(world.awaited);
  }
  const still = [...open].find((op) => seen.has(op));
  if (still !== undefined && held === undefined) hold(still);
  seen = open;
  isLooking = entries.size > 0;
  if (isLooking) lookLater();
}

function hold(op: CommOp): void {
  if (runtime === undefined || runtime.listenerCount("SIGINT") > 0) return;
  held = op;
  runtime.on("SIGINT", interrupted);
  // A signal that came while JavaScript ran is delivered in the next turn.
  op.whenSettled(() =>
    nextTurn(() =>
      nextTurn(() => {
        if (held === op) release();
      }),
    ),
  );
}

function release(): void {
  held = undefined;
  runtime?.removeListener("SIGINT", interrupted);
}

function interrupted(): void {
  release();
  const texts = [...entries].flatMap(({ world }) => {
    return world?.awaited === undefined ? [] : [world.interruptedText()];
  });
  // A listener that the program has added meanwhile decides what becomes of the process.
  const isAlone = runtime?.listenerCount("SIGINT") === 0;
  runtime?.stderr.write(`${escaped(texts.join("\n"))}\n`, () => {
    if (isAlone) runtime.kill(runtime.pid, "SIGINT");
  });
}
