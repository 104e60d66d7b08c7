/**
 * The buffers of a collective's calls, in device memory.
 *
 * Memory of this executor is already on the device. Host memory is mirrored for the duration of the collective: inputs are
 * uploaded before it, and outputs are read back before it settles.
 */

import { HostMemory } from "../../../../algorithms/host-memory.ts";
import { bytesOf } from "../../../../api/index.ts";
import type { BoundBuffer, BoundCall, SimMemory } from "../../executor.ts";
import { firstOf, lengthAt } from "../cpu.ts";
import { advanced, type Spot, type Spots } from "./jobs.ts";
import type { Machine } from "./machine.ts";
import { WebgpuMemory } from "./memory.ts";
import type { Recording } from "./recording.ts";
import type { Range } from "./slabs.ts";

/** A copy on the device of the part of a host memory that the calls use: `range` holds it from byte `begin` on. */
interface Mirror {
  readonly memory: HostMemory;
  readonly begin: number;
  readonly end: number;
  readonly range: Range;
  /** True when it holds an output. */
  readonly written: boolean;
}

/** Mirrors keep the offset of their bytes modulo this, so that aligned data stays aligned. */
const mirrorAlignment = 16;

/** The buffers of calls on the device, until it is closed. */
export class Bindings {
  /** By call. */
  readonly spots: readonly Spots[];
  readonly #calls: readonly BoundCall[];
  readonly #machine: Machine;
  readonly #mirrors: ReadonlyMap<SimMemory, Mirror>;

  constructor(machine: Machine, calls: readonly BoundCall[]) {
    this.#machine = machine;
    this.#calls = calls;
    for (const { inputs, outputs } of calls) {
      for (const buffer of [...inputs, ...outputs]) {
        if (buffer?.memory instanceof WebgpuMemory) buffer.memory.assertFine();
      }
    }
    this.#mirrors = this.#mirrored();
    const spot = (buffer: BoundBuffer | undefined): Spot | undefined =>
      buffer && this.#spot(buffer);
    this.spots = calls.map(({ inputs, outputs }) => {
      return { inputs: inputs.map(spot), outputs: outputs.map(spot) };
    });
  }

  /** Submits the commands of the calls, and waits until their outputs can be read. */
  async run(recording: Recording): Promise<void> {
    for (const { inputs, outputs } of this.#calls) {
      for (const buffer of inputs) if (buffer !== undefined) this.#upload(buffer);
      for (const buffer of outputs) {
        if (buffer?.memory instanceof WebgpuMemory)
          buffer.memory.noteWrite(buffer.byteOffset, buffer.byteLength);
      }
    }
    const written = [...this.#mirrors.values()].filter((mirror) => mirror.written);
    const ranges = written.map(({ range, begin, end }) => ({ ...range, bytes: end - begin }));
    const slabs = new Set(recording.slabs);
    for (const { inputs, outputs } of this.spots) {
      for (const spot of [...inputs, ...outputs]) if (spot !== undefined) slabs.add(spot.slab);
    }
    await this.#machine.download(
      ranges,
      (bytes, at) => this.#store(written[at] as Mirror, bytes),
      (encoder) => recording.encode(encoder),
      slabs,
    );
  }

  /** Frees the mirrors. */
  close(): void {
    for (const { range } of this.#mirrors.values()) this.#machine.slabs.free(range);
  }

  #mirrored(): Map<SimMemory, Mirror> {
    const parts = new Map<HostMemory, { begin: number; end: number; written: boolean }>();
    const add = (buffer: BoundBuffer | undefined, written: boolean): void => {
      if (buffer === undefined || !(buffer.memory instanceof HostMemory)) return;
      const { memory, byteOffset, byteLength } = buffer;
      const known = parts.get(memory) ?? { begin: byteOffset, end: byteOffset, written: false };
      known.begin = Math.min(known.begin, byteOffset);
      known.end = Math.max(known.end, byteOffset + byteLength);
      known.written ||= written;
      parts.set(memory, known);
    };
    for (const { inputs, outputs } of this.#calls) {
      for (const buffer of inputs) add(buffer, false);
      for (const buffer of outputs) add(buffer, true);
    }
    const mirrors = new Map<SimMemory, Mirror>();
    for (const [memory, { begin: first, end, written }] of parts) {
      const begin = first - (first % mirrorAlignment);
      const range = this.#machine.slabs.allocate(end - begin, false);
      mirrors.set(memory, { memory, begin, end, range, written });
    }
    return mirrors;
  }

  #spot({ memory, byteOffset }: BoundBuffer): Spot {
    if (memory instanceof WebgpuMemory) return advanced(memory.range, byteOffset);
    const { range, begin } = this.#mirrors.get(memory) as Mirror;
    return advanced(range, byteOffset - begin);
  }

  #upload({ memory, byteOffset, byteLength }: BoundBuffer): void {
    const mirror = this.#mirrors.get(memory);
    if (mirror === undefined || byteLength === 0) return;
    const begin = byteOffset - (byteOffset % mirrorAlignment);
    // Only whole words, because the following bytes may belong to another input that was already uploaded.
    const end = Math.min(Math.ceil((byteOffset + byteLength) / 4) * 4, mirror.memory.byteLength);
    const bytes = new Uint8Array(mirror.memory.buffer, begin, end - begin);
    this.#machine.upload(advanced(mirror.range, begin - mirror.begin), bytes);
  }

  /** Copies the chunks that the calls wrote to the host; the rest of the mirror has not changed. */
  #store({ memory, begin }: Mirror, bytes: Uint8Array): void {
    const host = new Uint8Array(memory.buffer);
    for (const { dtype, layout, outputs, plan } of this.#calls) {
      for (const target of plan.groups.flat().flatMap(({ targets }) => targets)) {
        const output = outputs[target.rank];
        if (output?.memory !== memory) continue;
        const at = output.byteOffset + firstOf(layout.out, target) * bytesOf(dtype);
        const length = lengthAt(layout.out, target) * bytesOf(dtype);
        host.set(bytes.subarray(at - begin, at - begin + length), at);
      }
    }
  }
}
