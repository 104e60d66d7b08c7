/**
 * The windows of one communicator: symmetric allocations that its ranks have used together.
 *
 * The first call that uses an allocation of every rank makes one window of them, as a collective registration would;
 * from then on they belong together. Ranks that bring allocations of different windows are out of order, which real
 * registration would leave as a hang.
 */
import type { RankCall } from "../../backend.ts";
import type { Allocation, DeviceBuffer } from "../../buffer.ts";
import { reachedBuffers, symmetricPlace } from "../../symmetric.ts";
import type { SignatureField } from "../calls/posting.ts";
import { differing, type Mismatch } from "./compare.ts";

/** A buffer of a call that lies in symmetric memory. */
type Side = "send" | "recv";

const sides: readonly Side[] = ["send", "recv"];

/** Numbers the windows of one communicator. */
export class Windows {
  readonly #numbers = new WeakMap<Allocation, number>();
  #made = 0;

  /** The reason why the buffers of a complete call lie in no common windows; makes new windows when there is none. */
  join(calls: readonly RankCall[]): Mismatch | undefined {
    if (!calls.some(isSymmetric)) return undefined;
    const places = calls.map(symmetricPlace);
    const reached = reachedBuffers((calls[0] as RankCall).collective);
    for (const side of sides) {
      const windows = calls.map((call, i) => (places[i] ? this.#window(call, side) : "none"));
      const fault = differing(`symmetric ${side}`, windows);
      if (fault !== undefined) return { ...fault, law: windowLaw };
      if (reached?.[side] !== true) continue;
      const offsets = places.map((place) => `byte ${place?.[side]} of it`);
      const apart = differing(`place of ${side}`, offsets);
      if (apart !== undefined) return { ...apart, law: placeLaw };
    }
    for (const side of sides) this.#make(calls, side);
    return undefined;
  }

  /**
   * One rank's words about the windows of its calls, one call after another: ranks with calls in common
   * windows say the same. Makes none.
   */
  fieldsOf(
    calls: readonly RankCall[],
    prefixOf: (index: number) => string,
  ): readonly SignatureField[] {
    const trial = new Windows();
    trial.#made = this.#made;
    return calls.flatMap((call, index): SignatureField[] => {
      const place = symmetricPlace(call);
      const prefix = prefixOf(index);
      if (place === undefined) return [[`${prefix}symmetric send`, "none"]];
      const reached = reachedBuffers(call.collective);
      for (const side of sides) trial.#adopt(this, call, side);
      const fields = sides.flatMap((side): SignatureField[] => {
        const window: SignatureField = [`${prefix}symmetric ${side}`, trial.#window(call, side)];
        const at: SignatureField = [`${prefix}place of ${side}`, `byte ${place[side]} of it`];
        return reached?.[side] === true ? [window, at] : [window];
      });
      for (const side of sides) trial.#make([call], side);
      return fields;
    });
  }

  /** Takes over the number that a buffer's allocation has in another numbering. */
  #adopt(other: Windows, call: RankCall, side: Side): void {
    const allocation = call[side]?.allocation;
    const number = allocation && other.#numbers.get(allocation);
    if (allocation !== undefined && number !== undefined) this.#numbers.set(allocation, number);
  }

  #window(call: RankCall, side: Side): string {
    const { allocation } = call[side] as DeviceBuffer;
    const number = this.#numbers.get(allocation);
    if (number !== undefined) return `window ${number}`;
    // In place, or beside its input, the output makes no window of its own.
    if (side === "recv" && allocation === call.send?.allocation) return "the window of send";
    return `a new window of ${allocation.memory.byteLength} bytes`;
  }

  #make(calls: readonly RankCall[], side: Side): void {
    const isNew = calls.some(({ [side]: buffer }) => {
      return buffer !== undefined && !this.#numbers.has(buffer.allocation);
    });
    if (!isNew) return;
    for (const { [side]: buffer } of calls) {
      if (buffer !== undefined) this.#numbers.set(buffer.allocation, this.#made);
    }
    this.#made++;
  }
}

/** The required windows of all ranks. */
export const windowLaw = "ranks use symmetric memory together, in the same order and equally long";
const placeLaw = "ranks reach it at the same place of everyone's window";

function isSymmetric(call: RankCall): boolean {
  return symmetricPlace(call) !== undefined;
}
