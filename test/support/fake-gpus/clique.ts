/**
 * Communicators of the fake NCCL: ends that belong together, and the kernels that meet there. A collective happens when
 * the kernels of all ranks are at the head of their streams; a message when both of its ends are.
 */
import { bytesOf, type DType } from "twinccl";
import { Comings } from "./connections.ts";
import { type Contribution, fold } from "./fold.ts";
import type { Machine } from "./machine.ts";
import type { Stream, Task } from "./streams.ts";

/** A collective of one rank. */
export interface CollectiveOp {
  readonly kind: "allReduce" | "reduce" | "reduceScatter" | "allGather" | "broadcast";
  readonly send: bigint;
  readonly recv: bigint;
  readonly count: number;
  readonly dtype: DType;
  /** The fold of this rank's contribution; left out for calls without reduction. */
  readonly op: Contribution | undefined;
  readonly root: number;
}

/** One end of a message. */
export interface MessageOp {
  readonly kind: "send" | "recv";
  readonly buffer: bigint;
  readonly count: number;
  readonly dtype: DType;
  readonly peer: number;
}

export type Op = CollectiveOp | MessageOp;

/** One rank's end of a communicator. */
export class End {
  readonly clique: Clique;
  /** Known once all ranks have come, where a split made it. */
  rank: number;
  readonly device: number;
  readonly handle: bigint;
  /** The process of this end: ends of one process must be issued together. */
  readonly process: object;
  aborted = false;
  /** Calls of it that are under way on other threads. */
  elsewhere = 0;
  /** Kernels that were submitted and are not over. */
  running = 0;
  readonly windows = new Map<bigint, bigint>();
  readonly operators = new Map<number, Contribution>();
  nextOperator = 5;
  /** The result of `ncclCommGetAsyncError`. */
  failure: unknown;

  constructor(clique: Clique, rank: number, device: number, handle: bigint, process: object) {
    this.clique = clique;
    this.rank = rank;
    this.device = device;
    this.handle = handle;
    this.process = process;
  }
}

/** A kernel at work for one rank: its operations, each done once. */
export class Kernel implements Task {
  readonly owner: End;
  readonly open: Set<Op>;
  readonly #stream: Stream;

  constructor(owner: End, ops: readonly Op[], stream: Stream) {
    this.owner = owner;
    this.open = new Set(ops);
    this.#stream = stream;
    owner.running += 1;
  }

  get what(): string {
    const ops = [...this.open].map(({ kind }) => kind).join(", ");
    return `${ops} of rank ${this.owner.rank} of ${this.owner.clique.size}`;
  }

  step(): boolean {
    if (!this.owner.aborted) this.owner.clique.meet();
    const over = this.owner.aborted || this.open.size === 0;
    if (over) this.owner.running -= 1;
    return over;
  }

  /** True at the head of its stream. */
  get here(): boolean {
    return this.#stream.queue[0] === this;
  }
}

/** All ends of one communicator. */
export class Clique {
  readonly ends: (End | undefined)[];
  /** Arrivals at the points where the ranks wait for each other. */
  readonly comings = new Comings();
  /** Ways on which a message is no first one any more: `from to`. */
  readonly connected = new Set<string>();
  readonly #machine: Machine;
  #size: number | undefined;

  /** Without a size it is known by its handles alone, until its ends are. */
  constructor(machine: Machine, size?: number) {
    this.#machine = machine;
    this.#size = size;
    this.ends = new Array<End | undefined>(size ?? 0).fill(undefined);
  }

  get size(): number {
    if (this.#size !== undefined) return this.#size;
    throw new Error("NCCL would wait in the split for the other ranks");
  }

  /** True when the ranks and their order are known: for a split's communicator once all ranks have arrived. */
  get isWhole(): boolean {
    return this.#size !== undefined;
  }

  /** True for ranks in several processes. */
  get isApart(): boolean {
    return this.ends.some((end) => end?.process !== this.ends[0]?.process);
  }

  /** NCCL would wait for the other end's process on the thread of this one. */
  isFirst(end: End, { kind, peer }: MessageOp): boolean {
    const way = kind === "send" ? `${end.rank} ${peer}` : `${peer} ${end.rank}`;
    return this.ends[peer]?.process !== end.process && !this.connected.has(way);
  }

  /** All ends have come, in the order of their ranks. */
  formed(ends: readonly End[]): void {
    this.#size = ends.length;
    this.ends.push(...ends);
    for (const [rank, end] of ends.entries()) end.rank = rank;
  }

  /** Lets happen what can happen among the kernels that are here. */
  meet(): void {
    if (!this.isWhole) return;
    const kernels = this.#kernels();
    this.#collectives(kernels);
    for (const kernel of kernels) if (kernel !== undefined) this.#messages(kernel, kernels);
  }

  /** The kernel at the head of each rank's stream. */
  #kernels(): (Kernel | undefined)[] {
    const kernels = new Array<Kernel | undefined>(this.size).fill(undefined);
    for (const { queue } of this.#machine.streams.values()) {
      const head = queue[0];
      if (head instanceof Kernel && head.owner.clique === this && !head.owner.aborted) {
        kernels[head.owner.rank] = head;
      }
    }
    return kernels;
  }

  #collectives(kernels: readonly (Kernel | undefined)[]): void {
    for (;;) {
      const ops = kernels.map((kernel) => firstCollective(kernel));
      if (ops.some((op) => op === undefined)) return;
      const all = ops as readonly CollectiveOp[];
      this.#refuseDifferent(all);
      run(this.#machine, kernels as readonly Kernel[], all);
      kernels.forEach((kernel, rank) => void kernel?.open.delete(all[rank] as CollectiveOp));
    }
  }

  /**
   * A rank is aborted: its kernel goes on without waiting, and sends what it has. Kernels that wait for that receive elements of no
   * call, and end.
   */
  breakOff(aborted: End): void {
    if (!this.isWhole) return;
    const kernels = this.#kernels();
    const broken = kernels[aborted.rank];
    const isCollective = firstCollective(broken) !== undefined;
    for (const kernel of kernels) {
      if (kernel === undefined || kernel === broken) continue;
      for (const op of [...kernel.open]) {
        const buffer = isCollective && "root" in op ? op.recv : undefined;
        const awaited = "peer" in op && op.kind === "recv" && op.peer === aborted.rank;
        const from = awaited && broken !== undefined ? op.buffer : buffer;
        if (from === undefined) continue;
        const bytes = op.count * bytesOf(op.dtype);
        // A reduce gives nothing to ranks beside the root.
        if (from !== 0n) this.#machine.memory.range(from, bytes, kernel.owner.device).fill(0x5a);
        kernel.open.delete(op);
      }
    }
  }

  #refuseDifferent(ops: readonly CollectiveOp[]): void {
    const texts = ops.map(({ kind, count, dtype, op, root }) =>
      [kind, count, dtype, op?.name, root].join(" "),
    );
    if (new Set(texts).size === 1) return;
    this.#machine.complain(`ranks differ: ${texts.join(" | ")}`);
    throw new Error(`ranks differ: ${texts.join(" | ")}`);
  }

  #messages(kernel: Kernel, kernels: readonly (Kernel | undefined)[]): void {
    const { rank, device } = kernel.owner;
    for (const op of kernel.open) {
      if (op.kind !== "send") continue;
      const other = kernels[op.peer];
      const match = [...(other?.open ?? [])].find(
        (each): each is MessageOp => each.kind === "recv" && each.peer === rank,
      );
      if (other === undefined || match === undefined) continue;
      if (match.count !== op.count || match.dtype !== op.dtype) {
        this.#machine.complain(
          `a message of ${op.count} ${op.dtype} meets ${match.count} ${match.dtype}`,
        );
      }
      const bytes = op.count * bytesOf(op.dtype);
      const { memory } = this.#machine;
      const sent = memory.range(op.buffer, bytes, device).slice();
      memory.range(match.buffer, bytes, other.owner.device).set(sent);
      kernel.open.delete(op);
      other.open.delete(match);
    }
  }
}

function firstCollective(kernel: Kernel | undefined): CollectiveOp | undefined {
  return [...(kernel?.open ?? [])].find((op): op is CollectiveOp => "root" in op);
}

/** Does one collective on the memory of all ranks: everything is read before anything is written. */
function run(machine: Machine, kernels: readonly Kernel[], ops: readonly CollectiveOp[]): void {
  const { kind, count, dtype, root } = ops[0] as CollectiveOp;
  const size = ops.length;
  const bytes = count * bytesOf(dtype);
  const read = (rank: number, length: number): Uint8Array =>
    machine.memory
      .range((ops[rank] as CollectiveOp).send, length, (kernels[rank] as Kernel).owner.device)
      .slice();
  const write = (rank: number, result: Uint8Array): void =>
    machine.memory
      .range(
        (ops[rank] as CollectiveOp).recv,
        result.length,
        (kernels[rank] as Kernel).owner.device,
      )
      .set(result);
  const every = Array.from({ length: size }, (_, rank) => rank);
  if (kind === "broadcast") {
    const sent = read(root, bytes);
    for (const rank of every) write(rank, sent);
  } else if (kind === "allGather") {
    const sent = every.map((rank) => read(rank, bytes));
    for (const rank of every) write(rank, new Uint8Array(Buffer.concat(sent)));
  } else {
    const length = kind === "reduceScatter" ? bytes * size : bytes;
    const folded = fold(
      dtype,
      every.map((rank) => read(rank, length)),
      ops.map(({ op }) => op as Contribution),
    );
    for (const rank of every) {
      if (kind === "reduceScatter") write(rank, folded.subarray(rank * bytes, (rank + 1) * bytes));
      else if (kind === "allReduce" || rank === root) write(rank, folded);
    }
  }
}
