/** Names for communicators on which all processes agree, and which no two communicators of a job share. */
import { createHash } from "node:crypto";
import type { CommInfo } from "../../../api/index.ts";

/** Names stand in keys of the store, which are short. */
const mostLength = 64;

/** The names that one process gives. */
export class CommunicatorKeys {
  readonly #keys = new WeakMap<CommInfo, string>();

  /** The name of a communicator: it says which call of which other one made it. */
  of(comm: CommInfo): string {
    return this.#keys.get(comm) ?? "world";
  }

  /** Communicators that call `number` of their parent made: all of them, in the order that every process has. */
  born(parent: CommInfo, number: number, children: readonly CommInfo[]): void {
    for (const [index, child] of children.entries()) {
      this.#keys.set(child, short(`${this.of(parent)}/${number}.${index}`));
    }
  }
}

/** A long name, of splits of splits of splits, by its hash. */
function short(name: string): string {
  if (name.length <= mostLength) return name;
  return `#${createHash("sha256").update(name).digest("hex").slice(0, 32)}`;
}
