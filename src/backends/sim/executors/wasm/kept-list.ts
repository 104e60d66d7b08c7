/**
 * The list of a repeated call: written once, with its scalars, into a separate block of the arena. The block is freed when the
 * call is collected. Lists with many words are not kept: they take long to run anyway.
 */

import type { FusedFold } from "../../../../algorithms/index.ts";
import type { BoundCall } from "../../executor.ts";
import type { Arena } from "./arena.ts";
import { Encoder, scalarBytes, wordsOf, writeScalars } from "./encoder.ts";

/** Bytes of a list that is kept. */
const maxBytes = 2 ** 16;

/** A list at a fixed address. */
export class KeptList {
  readonly arena: Arena;
  readonly address: number;
  readonly written: WrittenList;

  private constructor(arena: Arena, address: number, written: WrittenList) {
    this.arena = arena;
    this.address = address;
    this.written = written;
  }

  /** The list of a call with buffers at these addresses; `undefined` where it is too long to keep, or the arena is full. */
  static of(
    arena: Arena,
    call: BoundCall,
    inputs: readonly number[],
    outputs: readonly number[],
    mask: number,
  ): KeptList | undefined {
    const { groups } = call.plan;
    const scalarsBytes = scalarBytes * Math.max(1, call.folds.length);
    const byteLength = scalarsBytes + 4 * groups.reduce((sum, group) => sum + wordsOf(group), 0);
    if (byteLength > maxBytes) return undefined;
    const scalars = arena.take(byteLength);
    if (scalars === undefined) return undefined;
    writeScalars(call.dtype, call.folds, arena.memory.buffer, scalars);
    const address = scalars + scalarsBytes;
    const encoder = new Encoder(call, { inputs, outputs, scalars, mask });
    const written = writeGroups(encoder, groups, 0, arena.words, address / 4, maxBytes / 4);
    const kept = new KeptList(arena, address, written);
    arena.watch(kept, scalars, byteLength);
    return kept;
  }
}

/** The list of one call, or a part of it. */
export interface WrittenList {
  /** Groups of the list: those without bytes are left out. */
  readonly groups: number;
  /** Bytes of all groups together. */
  readonly bytes: number;
  /** Bytes that are read and written for it. */
  readonly traffic: number;
  /** Scratch memory that a thread needs. */
  readonly scratchBytes: number;
  /** The first group beyond the end of the list. */
  readonly next: number;
}

/** Writes groups from `begin` on as a list with a limit of words, from word `first` on. */
export function writeGroups(
  encoder: Encoder,
  groups: readonly (readonly FusedFold[])[],
  begin: number,
  words: Uint32Array,
  first: number,
  maxWords: number,
): WrittenList {
  const written = { groups: 0, bytes: 0, traffic: 0, scratchBytes: 0, next: begin };
  let at = first;
  for (; written.next < groups.length; written.next++) {
    const group = groups[written.next] as readonly FusedFold[];
    const bytes = encoder.bytesOf(group);
    if (bytes === 0) continue;
    const length = wordsOf(group);
    if (at + length > first + maxWords) break;
    const needed = encoder.write(group, bytes, words, at);
    at += length;
    written.groups++;
    written.bytes += bytes;
    written.traffic += encoder.trafficOf(group, bytes);
    written.scratchBytes = Math.max(written.scratchBytes, needed);
  }
  return written;
}
