/** State of a machine's fake NCCL between calls: the ends of communicators, and the open group. */
import { type Clique, type End, Kernel, type Op } from "./clique.ts";
import { type Machine, ncclError } from "./machine.ts";
import type { Split } from "./splits.ts";

/** The contents of a group: work by end and stream, and what happens to communicators when it closes. */
export interface Group {
  readonly work: { readonly end: End; readonly stream: bigint; readonly op: Op }[];
  readonly later: (() => void)[];
  /** One process's calls of one kind that must cover all of its ends. */
  readonly covered: Map<Clique, Set<End>>;
  readonly process: object;
}

/** The state of one process. */
export class State {
  readonly ends = new Map<bigint, End>();
  readonly joining = new Map<string, Clique>();
  readonly splits = new Map<Clique, Split>();
  group: Group | undefined;
  depth = 0;
  ids = 0;
  abortsHang = false;

  hangAborts(): void {
    this.abortsHang = true;
  }

  readonly #machine: Machine;

  constructor(machine: Machine) {
    this.#machine = machine;
  }

  /** An end for which NCCL is called: on one thread at a time. */
  end(handle: bigint): End {
    const end = this.anyEnd(handle);
    if (end.elsewhere > 0)
      this.#machine.complain(`communicator ${handle} is in use on two threads`);
    return end;
  }

  /** One that may be in use on another thread. */
  anyEnd(handle: bigint): End {
    const end = this.ends.get(handle);
    if (end !== undefined) return end;
    this.#machine.complain(`communicator ${handle} is used after its end`);
    throw ncclError("nccl", 4, "ncclInvalidArgument");
  }

  /** Runs calls as a group, or as part of the one that is open. */
  inGroup(calls: (group: Group) => void): void {
    if (this.group !== undefined) {
      calls(this.group);
      return;
    }
    const group: Group = { work: [], later: [], covered: new Map(), process: {} };
    this.group = group;
    try {
      calls(group);
    } finally {
      this.group = undefined;
    }
    this.#close(group);
  }

  cover(group: Group, end: End): void {
    const ends = group.covered.get(end.clique) ?? new Set();
    ends.add(end);
    group.covered.set(end.clique, ends);
  }

  #close(group: Group): void {
    for (const [clique, ends] of group.covered) {
      const process = [...ends][0]?.process;
      const missing = clique.ends.flatMap((end) =>
        end !== undefined && end.process === process && !ends.has(end) ? [end.rank] : [],
      );
      if (missing.length > 0)
        this.#machine.complain(`a group leaves out ranks ${missing.join(", ")}`);
    }
    const kernels = new Map<End, { readonly stream: bigint; readonly ops: Op[] }>();
    for (const { end, stream, op } of group.work) {
      const kernel = kernels.get(end) ?? { stream, ops: [] };
      kernel.ops.push(op);
      kernels.set(end, kernel);
    }
    for (const [end, { stream: handle, ops }] of kernels) {
      const stream = this.#machine.stream(handle);
      if (stream.device !== end.device)
        this.#machine.complain("a stream of another device is used");
      stream.put(() => new Kernel(end, ops, stream));
    }
    for (const act of group.later) act();
  }

  leaks(): string[] {
    return [...this.ends.values()].flatMap(({ rank, operators, windows, clique }) => [
      `rank ${rank} of a communicator of ${clique.size}`,
      ...[...operators.keys()].map((op) => `operator ${op}`),
      ...[...windows.keys()].map((window) => `window ${window}`),
    ]);
  }
}
