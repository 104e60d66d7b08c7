/** Groups of a call as one list in the arena, and what running them takes. */
import type { FusedFold } from "../../../../algorithms/index.ts";
import { type Encoder, wordsOf } from "./encoder.ts";

/** The list of one call. */
export interface Written {
  /** Groups of the list: those without bytes are left out. */
  readonly groups: number;
  /** Bytes of all groups together. */
  readonly bytes: number;
  /** Bytes that are read and written for it. */
  readonly traffic: number;
  /** Scratch memory that a thread needs. */
  readonly scratchBytes: number;
  /** The first group that the list had no room for. */
  readonly next: number;
}

/** Writes groups from `begin` on as a list of at most so many words, from word `first` on. */
export function writeGroups(
  encoder: Encoder,
  groups: readonly (readonly FusedFold[])[],
  begin: number,
  words: Uint32Array,
  first: number,
  mostWords: number,
): Written {
  const written = { groups: 0, bytes: 0, traffic: 0, scratchBytes: 0, next: begin };
  let at = first;
  for (; written.next < groups.length; written.next++) {
    const group = groups[written.next] as readonly FusedFold[];
    const bytes = encoder.bytesOf(group);
    if (bytes === 0) continue;
    const length = wordsOf(group);
    if (at + length > first + mostWords) break;
    const needed = encoder.write(group, bytes, words, at);
    at += length;
    written.groups++;
    written.bytes += bytes;
    written.traffic += encoder.trafficOf(group, bytes);
    written.scratchBytes = Math.max(written.scratchBytes, needed);
  }
  return written;
}
