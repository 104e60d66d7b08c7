/**
 * Calls that a rank makes again with the same arguments, as loops do: they were checked then, and what was made of them is
 * taken again.
 *
 * A buffer remembers the call that was last made with it. Only calls are remembered whose arguments are buffers, a root and
 * an operator with a name, which stay what they are. What may have changed is whether the buffers live: that is asked anew.
 */
import { DeviceBuffer } from "../buffer.ts";
import type { CollectiveName } from "../collectives/spec.ts";
import type { Prepared } from "./prepared.ts";

/** All arguments of a call that can be remembered. */
interface Arguments {
  readonly send?: unknown;
  readonly recv?: unknown;
  readonly op?: unknown;
  readonly root?: unknown;
}

/** A call as it was made. */
interface Remembered extends Arguments {
  /** Who made it: a buffer may be used on several communicators. */
  readonly by: Repeats;
  readonly collective: CollectiveName;
  readonly prepared: Prepared<unknown>;
}

/** Collectives that take no further arguments. */
const repeatable: ReadonlySet<CollectiveName> = new Set([
  "allReduce",
  "reduce",
  "broadcast",
  "allGather",
  "reduceScatter",
  "allToAll",
  "barrier",
]);

/** The calls of one rank on one communicator. */
export class Repeats {
  #barrier: Prepared<unknown> | undefined;

  /** What was made of the same call before; `undefined` when it has to be checked. */
  find(collective: CollectiveName, args: object | undefined): Prepared<unknown> | undefined {
    if (collective === "barrier") return this.#barrier;
    const { send, recv, op, root } = (args ?? none) as Arguments;
    const buffer = send ?? recv;
    if (!(buffer instanceof DeviceBuffer)) return undefined;
    const last = buffer.lastCall as Remembered | undefined;
    if (last === undefined || last.by !== this || last.collective !== collective) return undefined;
    if (last.send !== send || last.recv !== recv || last.op !== op || last.root !== root) {
      return undefined;
    }
    const { call } = last.prepared;
    return call.send?.disposed === true || call.recv?.disposed === true ? undefined : last.prepared;
  }

  /** Remembers a call that was checked. */
  note(collective: CollectiveName, args: object | undefined, prepared: Prepared<unknown>): void {
    if (!repeatable.has(collective)) return;
    if (collective === "barrier") {
      this.#barrier = prepared;
      return;
    }
    const { send, recv, op, root } = (args ?? none) as Arguments;
    const buffer = send ?? recv;
    if (!(buffer instanceof DeviceBuffer) || typeof op === "object") return;
    const last: Remembered = { by: this, collective, send, recv, op, root, prepared };
    buffer.lastCall = last;
  }
}

const none: Arguments = {};
