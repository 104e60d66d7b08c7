/** One rank's file of a checkpoint: its pieces of what all ranks share, and what it has of its own. */
import { InvalidArgumentError } from "../../api/index.ts";
import type { State, StateTensor } from "../state.ts";
import { type Piece, piecesOf } from "./cut.ts";
import type { CheckpointFiles } from "./files.ts";
import { type FileLine, format, type Manifest, type SharedPart, sha256Of } from "./manifest.ts";
import { decodeTensors, encodeTensors, type TensorFile } from "./safetensors.ts";
import { FileFault } from "./together.ts";

/** States by the names of their parts. */
export type States = Readonly<Record<string, State>>;

/** Which file of which save it is. */
export interface FileOf {
  readonly save: number;
  readonly rank: number;
  readonly size: number;
}

const HINT = "load an earlier save by its number, or restore the file";

/** All shared tensors, by `part/tensor`, in the order that the cut follows. */
export function sharedTensors(
  shared: readonly (readonly [string, Pick<SharedPart, "tensors">])[],
): [string, SharedPart["tensors"][number][1]][] {
  return shared.flatMap(([part, { tensors }]) =>
    tensors.map(([name, line]): [string, typeof line] => [`${part}/${name}`, line]),
  );
}

/** Bytes of tensors in a file: what Node reads and hashes in one go, less 64 MiB for names and values. */
const MOST_BYTES = 2 ** 31 - 2 ** 26;

/** What goes into a rank's file. */
export type RankContent = Pick<TensorFile, "tensors"> & { readonly values: string };

/** Takes this rank's share of the state out of it, in copies: what changes afterwards is not in it. */
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
      cutOut(all.get(piece.name) as StateTensor, piece),
    ],
  );
  const own = Object.entries(perRank).flatMap(([part, { tensors }]) =>
    Object.entries(tensors).map(([name, tensor]): [string, StateTensor] => [
      `rank/${part}/${name}`,
      tensor,
    ]),
  );
  const bytes = [...pieces, ...own].reduce((sum, [, { data }]) => sum + data.byteLength, 0);
  if (bytes > MOST_BYTES) throw tooLarge(rank, bytes);
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
function cutOut({ dtype, shape, data }: StateTensor, { begin, end }: Piece): StateTensor {
  const whole = begin === 0 && end === data.length;
  return { dtype, shape: whole ? shape : [end - begin], data: data.subarray(begin, end) };
}

function tooLarge(rank: number, bytes: number): InvalidArgumentError {
  return new InvalidArgumentError(
    {
      headline: `save: the share of rank ${rank}: found ${bytes} bytes, needs at most ${MOST_BYTES}`,
      hint: "save on more ranks, which have smaller shares, or keep less",
    },
    { rank, field: "parts" },
  );
}

/**
 * Reads a rank's file and makes sure that it is the one the manifest means.
 *
 * @throws FileFault when it is missing, torn, or belongs to another save.
 */
export async function readRankFile(
  files: CheckpointFiles,
  line: FileLine,
  of: FileOf,
): Promise<Uint8Array> {
  let bytes: Uint8Array;
  try {
    bytes = await files.read(line.path);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new FileFault(line.path, `cannot be read: ${why}`, HINT, error);
  }
  const stranger = strangerFault(bytes, of);
  if (stranger !== undefined) {
    throw new FileFault(line.path, `is mixed in: ${stranger}`, HINT);
  }
  if (bytes.length !== line.bytes) {
    throw new FileFault(line.path, `is torn: ${bytes.length} bytes of ${line.bytes}`, HINT);
  }
  if ((await sha256Of(bytes)) !== line.sha256) {
    throw new FileFault(line.path, "is torn: its checksum is another than when it was saved", HINT);
  }
  return bytes;
}

/** Says whose file it is when it is whole, but another one's. */
function strangerFault(bytes: Uint8Array, { save, rank, size }: FileOf): string | undefined {
  let metadata: TensorFile["metadata"];
  try {
    ({ metadata } = decodeTensors(bytes));
  } catch {
    return undefined;
  }
  const needed = { save: String(save), rank: String(rank), size: String(size) };
  const same = Object.entries(needed).every(([name, value]) => metadata[name] === value);
  const text = (of: Readonly<Record<string, string>>): string =>
    `save ${of["save"]}, rank ${of["rank"]} of ${of["size"]}`;
  return same ? undefined : `it belongs to ${text(metadata)}, needs ${text(needed)}`;
}

/** Copies the shared pieces of a file to where they belong. */
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

/** What a rank had of its own. */
export function ownStates(file: TensorFile, parts: readonly string[]): States {
  const values = JSON.parse(file.metadata["values"] as string) as Record<string, State["values"]>;
  const states = parts.map((part): [string, State] => {
    const begin = `rank/${part}/`;
    const tensors = Object.entries(file.tensors)
      .filter(([name]) => name.startsWith(begin))
      .map(([name, tensor]): [string, StateTensor] => [name.slice(begin.length), tensor]);
    return [part, { values: values[part] ?? {}, tensors: Object.fromEntries(tensors) }];
  });
  return Object.fromEntries(states);
}
