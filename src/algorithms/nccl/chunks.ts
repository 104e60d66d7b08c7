/**
 * How a channel walks through its part: chunk by chunk, loop by loop.
 *
 * A chunk is what one message carries at most; its size follows from the channel's buffer. A Ring all-reduce has one
 * chunk for every rank in each loop, and shrinks them in the last one so that all ranks have work. Nothing else is
 * shrunk, and only there does the chunk decide bits.
 */
import {
  bufferSteps,
  grains,
  type NcclAlgorithm,
  type NcclCollective,
  type NcclProtocol,
} from "./protocol.ts";
import type { ResolvedSettings } from "./settings.ts";

/** The call as far as its chunks depend on it. */
export interface ChunkQuestion {
  readonly collective: NcclCollective;
  readonly algorithm: NcclAlgorithm;
  readonly protocol: NcclProtocol;
  readonly ranks: number;
  readonly elementBytes: number;
  readonly settings: ResolvedSettings;
}

/** One chunk of a part: where it lies, counted from the part's start. */
export interface Chunk {
  readonly loop: number;
  readonly chunk: number;
  readonly offset: number;
  readonly length: number;
}

/** Elements of a full chunk in a part of `partLength` elements. */
export function chunkElements(question: ChunkQuestion, partLength: number): number {
  const { algorithm, protocol, elementBytes } = question;
  const bytes =
    algorithm === "Tree" && protocol === "LL128"
      ? treeChunkBytes(question, partLength * elementBytes)
      : chunkBytes(question);
  const grain = grains[protocol];
  return (bytes / grain) * Math.floor(grain / elementBytes);
}

/** Bytes of a full chunk: what fits into the slots of the buffer that a message takes. */
function chunkBytes({ collective, algorithm, protocol, settings }: ChunkQuestion): number {
  const grain = grains[protocol];
  const pipelined = collective !== "reduce" && collective !== "broadcast";
  const slots = algorithm === "Ring" && protocol === "Simple" && pipelined ? 4 : 1;
  const base = Math.floor(bufferOf(protocol, settings) / bufferSteps) * slots;
  // LL spends half of its buffer on flags, LL128 one word of 16.
  const data =
    protocol === "LL" ? base / 2 : protocol === "LL128" ? Math.floor(base / 16) * 15 : base;
  return Math.max(1, Math.floor(data / grain)) * grain;
}

/** Small parts of a Tree over LL128 take smaller chunks, so that its chain is a pipeline. */
function treeChunkBytes(question: ChunkQuestion, partBytes: number): number {
  const { ranks } = question;
  const depth = 1 + 0.1 * ranks;
  let bytes = chunkBytes(question);
  const chunks = (): number => Math.floor(partBytes / bytes);
  while (chunks() < (64 * depth) / ranks && bytes > 131_072) bytes /= 2;
  while (chunks() < (16 * depth) / ranks && bytes > 32_768) bytes /= 2;
  return Math.max(1, Math.floor(bytes / grains.LL128)) * grains.LL128;
}

/** Chunks of a part of a Ring all-reduce: `ranks` in every loop, of which the last ones may be empty. */
export function ringAllReduceChunks(
  partLength: number,
  chunk: number,
  ranks: number,
  elementBytes: number,
): Chunk[] {
  const chunks: Chunk[] = [];
  const step = 16 / elementBytes;
  for (let loop = 0, start = 0; start < partLength; loop++, start += ranks * chunk) {
    const rest = partLength - start;
    const full = rest >= ranks * chunk;
    const size = full ? chunk : Math.ceil(Math.ceil(rest / ranks) / step) * step;
    for (let index = 0; index < ranks; index++) {
      const offset = Math.min(index * size, rest);
      const length = Math.min(size, rest - offset);
      chunks.push({ loop, chunk: index, offset: start + offset, length });
    }
  }
  return chunks;
}

/** Chunks of a part where each loop carries one chunk. */
export function plainChunks(partLength: number, chunk: number): Chunk[] {
  const loops = Math.ceil(partLength / chunk);
  return Array.from({ length: loops }, (_, loop) => {
    const offset = loop * chunk;
    return { loop, chunk: 0, offset, length: Math.min(chunk, partLength - offset) };
  });
}

function bufferOf(protocol: NcclProtocol, settings: ResolvedSettings): number {
  if (protocol === "LL") return settings.llBuffSize;
  return protocol === "LL128" ? settings.ll128BuffSize : settings.buffSize;
}
