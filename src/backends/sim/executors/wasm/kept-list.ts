/**
 * The list of a repeated call: written once, with its scalars, into a separate block of the arena. The block is freed when the
 * call is collected. Lists with many words are not kept: they take long to run anyway.
 */

import type { FusedFold } from "../../../../algorithms/index.ts";
import type { BoundCall } from "../../executor.ts";
import type { Arena } from "./arena.ts";
import { type Addresses, Encoder, scalarBytes, wordsOf, writeScalars } from "./encoder.ts";

/** Bytes of a list that is kept. */
const maxBytes = 2 ** 16;

/** A list at a fixed address. */
export class KeptList {
  readonly arena: Arena;
  readonly written: WrittenList;

  private constructor(arena: Arena, written: WrittenList) {
    this.arena = arena;
    this.written = written;
  }

  /** The list of a call with buffers at these addresses; `undefined` where it is too long to keep, or the arena is full. */
  static of(arena: Arena, call: BoundCall, addresses: Addresses): KeptList | undefined {
    const byteLength = listBytes(call, call.plan.groups);
    if (byteLength > maxBytes) return undefined;
    const address = arena.take(byteLength);
    if (address === undefined) return undefined;
    const kept = new KeptList(arena, writeList(arena, call, addresses, 0, address, byteLength));
    arena.watch(kept, address, byteLength);
    return kept;
  }
}

/** The list of one call, or a part of it. */
export interface WrittenList {
  readonly address: number;
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

type Groups = readonly (readonly FusedFold[])[];

/** Bytes of a list of these groups, and of the call's scalars before it. */
export function listBytes(call: BoundCall, groups: Groups): number {
  return scalarsBytes(call) + 4 * groups.reduce((sum, group) => sum + wordsOf(group), 0);
}

function scalarsBytes({ folds }: BoundCall): number {
  return scalarBytes * Math.max(1, folds.length);
}

/** Writes the scalars of a call, and behind them its groups from `begin` on as a list, into so many bytes at an address. */
export function writeList(
  arena: Arena,
  call: BoundCall,
  addresses: Addresses,
  begin: number,
  at: number,
  byteLength: number,
): WrittenList {
  writeScalars(call.dtype, call.folds, arena.memory.buffer, at);
  const encoder = new Encoder(call, addresses, at);
  const { groups } = call.plan;
  const address = at + scalarsBytes(call);
  const written = { address, groups: 0, bytes: 0, traffic: 0, scratchBytes: 0, next: begin };
  let word = address / 4;
  for (; written.next < groups.length; written.next++) {
    const group = groups[written.next] as readonly FusedFold[];
    const bytes = encoder.bytesOf(group);
    if (bytes === 0) continue;
    const length = wordsOf(group);
    if (4 * (word + length) > at + byteLength) break;
    const needed = encoder.write(group, bytes, arena.words, word);
    word += length;
    written.groups++;
    written.bytes += bytes;
    written.traffic += encoder.trafficOf(group, bytes);
    written.scratchBytes = Math.max(written.scratchBytes, needed);
  }
  return written;
}
