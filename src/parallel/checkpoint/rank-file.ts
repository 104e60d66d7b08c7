/** One rank's file of a checkpoint: its pieces of the shared state, and its own state. */
import { bytesOf, type DType } from "../../api/index.ts";
import { invalid } from "../../api/option-kinds.ts";
import { elementsOf, isRecord, type State, type StateTensor } from "../state.ts";
import { FileFault, withFileName } from "./failures.ts";
import type { CheckpointFiles } from "./files.ts";
import {
  type FileEntry,
  format,
  type Manifest,
  type SharedPart,
  sha256Of,
  type TensorEntry,
} from "./manifest.ts";
import { decodeTensors, encodeTensors, type TensorFile } from "./safetensors.ts";

/** States by the names of their parts. */
export type States = Readonly<Record<string, State>>;

/** The rank and the save of a file. */
export interface FileOf {
  readonly save: number;
  readonly rank: number;
  readonly size: number;
}

const HINT = "load an earlier save by its number, or restore the file";

/** All shared tensors, by `part/tensor`, in the order that the cut follows. */
export function sharedTensors(
  shared: readonly (readonly [string, Pick<SharedPart, "tensors">])[],
): [string, TensorEntry][] {
  return shared.flatMap(([part, { tensors }]) =>
    tensors.map(([name, entry]): [string, TensorEntry] => [`${part}/${name}`, entry]),
  );
}

/** Most bytes of tensors in a file: the limit of one read or hash in Node, less 64 MiB for names and values. */
const MOST_BYTES = 2 ** 31 - 2 ** 26;

/** The contents of a rank's file. */
export type RankContent = Pick<TensorFile, "tensors"> & { readonly values: string };

/** Copies this rank's share of the state, without later changes. */
export function rankContent(
  { rank, size }: Pick<FileOf, "rank" | "size">,
  manifest: Pick<Manifest, "shared">,
  shared: States,
  perRank: States,
): RankContent {
  const all = new Map<string, StateTensor>();
  for (const [part, state] of Object.entries(shared)) {
    for (const [name, tensor] of Object.entries(state.tensors)) all.set(`${part}/${name}`, tensor);
  }
  const pieces = piecesOf(sharedTensors(manifest.shared), rank, size).map(
    (piece): [string, StateTensor] => [
      `shared/${piece.name}`,
      sliceOf(all.get(piece.name) as StateTensor, piece),
    ],
  );
  const own = Object.entries(perRank).flatMap(([part, { tensors }]) =>
    Object.entries(tensors).map(([name, tensor]): [string, StateTensor] => [
      `rank/${part}/${name}`,
      tensor,
    ]),
  );
  const bytes = [...pieces, ...own].reduce((sum, [, { data }]) => sum + data.byteLength, 0);
  if (bytes > MOST_BYTES)
    throw invalid(
      "save",
      `the share of rank ${rank}`,
      `${bytes} bytes`,
      `at most ${MOST_BYTES}`,
      "save on more ranks, which have smaller shares, or keep less",
      { rank, field: "parts" },
    );
  const values = Object.entries(perRank).map(([part, state]) => [part, state.values]);
  const copies = [...pieces, ...own].map(([name, tensor]): [string, StateTensor] => [
    name,
    { ...tensor, data: tensor.data.slice() },
  ]);
  return {
    tensors: Object.fromEntries(copies),
    values: JSON.stringify(Object.fromEntries(values)),
  };
}

/** The bytes of a rank's file. */
export function encodeRankFile(
  { save, rank, size }: FileOf,
  { tensors, values }: RankContent,
): Uint8Array<ArrayBuffer> {
  const metadata = {
    format,
    save: String(save),
    rank: String(rank),
    size: String(size),
    values,
  };
  return encodeTensors({ tensors, metadata });
}

/** A whole tensor keeps its shape; a piece is a row of elements. */
function sliceOf({ dtype, shape, data }: StateTensor, piece: Piece): StateTensor {
  const { begin, end } = piece;
  return { dtype, shape: shapeOf(shape, piece), data: data.subarray(begin, end) };
}

function shapeOf(shape: readonly number[], { begin, end }: Piece): readonly number[] {
  return begin === 0 && end === elementsOf(shape) ? shape : [end - begin];
}

/**
 * Reads a rank's file and checks that it is the one in the manifest, with the contents of the manifest.
 *
 * @throws FileFault when it is missing, incomplete, belongs to another save, or has other contents.
 */
export async function readRankFile(
  files: CheckpointFiles,
  manifest: Manifest,
  rank: number,
): Promise<Uint8Array> {
  const entry = manifest.files[rank] as FileEntry;
  const bytes = await withFileName(entry.path, "cannot be read", HINT, () =>
    files.read(entry.path),
  );
  const [file, why] = decoded(bytes);
  const fault = foreignFileFault(file, { ...manifest, rank });
  if (fault !== undefined) throw new FileFault(entry.path, `is mixed in: ${fault}`, HINT);
  if (bytes.length !== entry.bytes) {
    throw new FileFault(entry.path, `is torn: ${bytes.length} bytes of ${entry.bytes}`, HINT);
  }
  if ((await sha256Of(bytes)) !== entry.sha256) {
    throw new FileFault(
      entry.path,
      "is torn: its checksum is another than when it was saved",
      HINT,
    );
  }
  if (file === undefined) throw new FileFault(entry.path, `is no safetensors file: ${why}`, HINT);
  assertTensors(entry.path, file, manifest, rank);
  valuesOf(entry.path, file, manifest.perRank);
  return bytes;
}

/** The file, or its fault. */
function decoded(bytes: Uint8Array): [TensorFile] | [undefined, string] {
  try {
    return [decodeTensors(bytes)];
  } catch (error) {
    return [undefined, error instanceof Error ? error.message : String(error)];
  }
}

/** Names the owner of a complete file of another rank. */
function foreignFileFault(
  file: TensorFile | undefined,
  { save, rank, size }: FileOf,
): string | undefined {
  if (file === undefined) return undefined;
  const { metadata } = file;
  const needed = { save: String(save), rank: String(rank), size: String(size) };
  const same = Object.entries(needed).every(([name, value]) => metadata[name] === value);
  const text = (of: Readonly<Record<string, string>>): string =>
    `save ${of["save"]}, rank ${of["rank"]} of ${of["size"]}`;
  return same ? undefined : `it belongs to ${text(metadata)}, needs ${text(needed)}`;
}

/**
 * Refuses a file unless it has exactly the pieces of the cut, with their dtypes and lengths, and tensors of the rank's own
 * parts.
 */
function assertTensors(
  path: string,
  file: TensorFile,
  { shared, size, perRank }: Manifest,
  rank: number,
): void {
  const text = (dtype: DType, shape: readonly number[]): string => `${dtype} [${shape.join(", ")}]`;
  const tensors = sharedTensors(shared);
  const whole = new Map(tensors);
  const needed = new Map<string, string>();
  for (const piece of piecesOf(tensors, rank, size)) {
    const { dtype, shape } = whole.get(piece.name) as TensorEntry;
    needed.set(`shared/${piece.name}`, text(dtype, shapeOf(shape, piece)));
  }
  for (const [name, { dtype, shape }] of Object.entries(file.tensors)) {
    const found = text(dtype, shape);
    if (needed.get(name) !== found && !perRank.some((part) => name.startsWith(`rank/${part}/`))) {
      const fault = `has another tensor "${name}": found ${found}, needs ${needed.get(name) ?? "none"}`;
      throw new FileFault(path, fault, HINT);
    }
    needed.delete(name);
  }
  for (const [name, entry] of needed) throw new FileFault(path, `lacks "${name}": ${entry}`, HINT);
}

/** Values of a rank's own parts, by the names of these. */
function valuesOf(
  path: string,
  { metadata }: TensorFile,
  parts: readonly string[],
): Readonly<Record<string, State["values"]>> {
  let values: unknown;
  try {
    values = JSON.parse(metadata["values"] ?? "");
  } catch {
    // Refused below.
  }
  const found = new Map(isRecord(values) ? Object.entries(values) : []);
  if (isRecord(values) && found.size === parts.length) {
    if (parts.every((part) => isRecord(found.get(part))))
      return values as Readonly<Record<string, State["values"]>>;
  }
  const needed = `objects of ${parts.join(", ") || "no parts"}`;
  throw new FileFault(path, `has other values of parts than the manifest, needs ${needed}`, HINT);
}

/** Copies the shared pieces of a file to their places. */
export function takePieces(
  file: TensorFile,
  manifest: Manifest,
  rank: number,
  into: ReadonlyMap<string, StateTensor>,
): void {
  for (const { name, begin } of piecesOf(sharedTensors(manifest.shared), rank, manifest.size)) {
    const piece = file.tensors[`shared/${name}`] as StateTensor;
    const whole = (into.get(name) as StateTensor).data;
    (whole as Float64Array).set(piece.data as Float64Array, begin);
  }
}

/** The own states of a rank. */
export function ownStates(
  file: TensorFile,
  { files, perRank: parts }: Manifest,
  rank: number,
): States {
  const values = valuesOf((files[rank] as FileEntry).path, file, parts);
  const states = parts.map((part): [string, State] => {
    const begin = `rank/${part}/`;
    const tensors = Object.entries(file.tensors)
      .filter(([name]) => name.startsWith(begin))
      .map(([name, tensor]): [string, StateTensor] => [name.slice(begin.length), tensor]);
    return [
      part,
      { values: values[part] as State["values"], tensors: Object.fromEntries(tensors) },
    ];
  });
  return Object.fromEntries(states);
}

// The cut of shared state over the ranks' files: into equal runs of bytes, across the bounds of tensors.
//
// The cut depends only on the tensors and the number of ranks, so it is not stored: it gives the elements of every tensor in a
// file.

/** A run of elements of one tensor. */
export interface Piece {
  readonly name: string;
  readonly begin: number;
  /** Exclusive. */
  readonly end: number;
}

/** Alignment of tensors and of the file's end in bytes: a multiple of every element's width. */
const UNIT_BYTES = 8;

/**
 * The pieces in the file of a rank; tensors in the given order. A tensor without elements is in the first file.
 *
 * @internal
 */
export function piecesOf(
  tensors: readonly (readonly [string, Pick<StateTensor, "dtype" | "shape">])[],
  rank: number,
  size: number,
): Piece[] {
  const units = tensors.map(([, { dtype, shape }]) =>
    Math.ceil((elementsOf(shape) * bytesOf(dtype)) / UNIT_BYTES),
  );
  const total = units.reduce((sum, each) => sum + each, 0);
  const first = Math.floor((total * rank) / size);
  const last = Math.floor((total * (rank + 1)) / size);
  const pieces: Piece[] = [];
  let start = 0;
  for (const [at, [name, { dtype, shape }]] of tensors.entries()) {
    const count = elementsOf(shape);
    const stop = start + (units[at] as number);
    const perUnit = UNIT_BYTES / bytesOf(dtype);
    const begin = Math.min(count, (Math.max(first, start) - start) * perUnit);
    const end = Math.min(count, (Math.min(last, stop) - start) * perUnit);
    if (count === 0 && rank === 0) pieces.push({ name, begin: 0, end: 0 });
    else if (begin < end) pieces.push({ name, begin, end });
    start = stop;
  }
  return pieces;
}
