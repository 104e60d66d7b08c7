/** The manifests of saves, and the folders that hold them. */
import { bytesOf, type DType, isDType } from "../../api/index.ts";
import { textOf } from "../../api/option-kinds.ts";
import { isCount } from "../argument-checks.ts";
import { elementsOf, isRecord, type StateValue } from "../state.ts";
import { FileFault, withFileName } from "./failures.ts";
import type { CheckpointFiles } from "./files.ts";

/** A tensor as the manifest lists it. */
export interface TensorEntry {
  readonly dtype: DType;
  readonly shape: readonly number[];
}

/** A part that all ranks share. */
export interface SharedPart {
  readonly values: Readonly<Record<string, StateValue>>;
  /** In the order of names, as the cut. */
  readonly tensors: readonly (readonly [string, TensorEntry])[];
}

/** One rank's file. */
export interface FileEntry {
  readonly path: string;
  readonly bytes: number;
  readonly sha256: string;
}

/** The files of a save and their layout. */
export const format = "twinccl-checkpoint-1" as const;

/** A complete checkpoint. */
export interface Manifest {
  readonly format: typeof format;
  /** Number of the save in these files, from 1. */
  readonly save: number;
  readonly step: number;
  /** Number of ranks that wrote it. */
  readonly size: number;
  /** In the order of names. */
  readonly shared: readonly (readonly [string, SharedPart])[];
  /** Names of the per-rank parts. */
  readonly perRank: readonly string[];
  /** By rank. */
  readonly files: readonly FileEntry[];
}

const DAMAGED = "it is damaged: load an earlier save by its number, or remove this folder";

/** The folder of a save. */
function folderOf(save: number): string {
  return `save-${String(save).padStart(8, "0")}`;
}

/** The number of a folder's save; `undefined` for a name that `folderOf` does not return. */
function saveOf(folder: string): number | undefined {
  const save = Number(/^save-(\d{8,})$/.exec(folder)?.[1] ?? 0);
  return isCount(save, 1) && folderOf(save) === folder ? save : undefined;
}

/** The file of a rank. */
export function rankPath(save: number, rank: number, size: number): string {
  const digits = (value: number): string => String(value).padStart(5, "0");
  return `${folderOf(save)}/rank-${digits(rank)}-of-${digits(size)}.safetensors`;
}

/** The path of a save's manifest. */
export function manifestPath(save: number): string {
  return `${folderOf(save)}/manifest.json`;
}

/** Writes a manifest under a temporary name and renames it when it is complete. */
export async function writeManifest(files: CheckpointFiles, manifest: Manifest): Promise<void> {
  const body = JSON.stringify(manifest);
  const sha256 = await sha256Of(new TextEncoder().encode(body));
  const path = manifestPath(manifest.save);
  const text = `{"sha256":"${sha256}","manifest":${body}}\n`;
  await files.write(`${path}.partial`, new TextEncoder().encode(text));
  await files.rename(`${path}.partial`, path);
}

/**
 * Reads the manifest of a save.
 *
 * @throws FileFault when it is missing, incomplete, of another format, or describes a save that cannot exist.
 */
export async function readManifest(files: CheckpointFiles, save: number): Promise<Manifest> {
  const path = manifestPath(save);
  const names = await files.list(folderOf(save));
  if (!names.includes("manifest.json")) {
    const fault = names.length === 0 ? "is not there" : "is torn: it has no manifest.json";
    throw new FileFault(
      folderOf(save),
      `${fault}, needs a save that was completed`,
      "a save that was interrupted is worth nothing: load another one",
    );
  }
  const bytes = await withFileName(path, "cannot be read", DAMAGED, () => files.read(path));
  const text = new TextDecoder().decode(bytes);
  const found = /^\{"sha256":"([0-9a-f]{64})","manifest":(.*)\}\n$/s.exec(text);
  const [, sha256, body = ""] = found ?? [];
  if (sha256 === undefined || (await sha256Of(new TextEncoder().encode(body))) !== sha256) {
    throw new FileFault(path, "is torn: its checksum does not fit", DAMAGED);
  }
  return checkedManifest(parsed(path, body), save);
}

function parsed(path: string, body: string): unknown {
  try {
    return JSON.parse(body);
  } catch (error) {
    throw new FileFault(path, "is no JSON", DAMAGED, error);
  }
}

/**
 * Checks that every name, number and path of a manifest is that of a save with this number. Its checksum proves that it is
 * complete, not that a save wrote it.
 */
function checkedManifest(value: unknown, save: number): Manifest {
  const need: Need = (field, found, isRight, needed) => {
    if (isRight) return;
    const fault = `${field}: found ${textOf(found)}, needs ${needed}`;
    throw new FileFault(manifestPath(save), `is no manifest of a save: ${fault}`, DAMAGED);
  };
  need("manifest", value, isRecord(value), "an object");
  const manifest = value as Manifest;
  if (manifest.format !== format) {
    const fault = `has the format ${textOf(manifest.format)}`;
    throw new FileFault(manifestPath(save), fault, "read it with its own program");
  }
  if (manifest.save !== save) {
    const fault = `belongs to save ${textOf(manifest.save)}`;
    throw new FileFault(manifestPath(save), fault, DAMAGED);
  }
  const { step, size, shared, perRank, files } = manifest;
  need("step", step, isCount(step, 0), "an integer of at least 0");
  need("size", size, isCount(size, 1), "an integer of at least 1");
  needParts(need, shared);
  needNames(need, "perRank", perRank, isPartName);
  need("files", files, Array.isArray(files), "an array");
  need("files", files.length, files.length === size, `${size}, one of each rank`);
  for (const [rank, entry] of files.entries()) {
    const path = rankPath(save, rank, size);
    need(`files.${rank}`, entry, isRecord(entry), "an object");
    need(`files.${rank}.path`, entry.path, entry.path === path, JSON.stringify(path));
    need(`files.${rank}.bytes`, entry.bytes, isCount(entry.bytes, 1), "an integer of at least 1");
    const isSum = typeof entry.sha256 === "string" && /^[0-9a-f]{64}$/.test(entry.sha256);
    need(`files.${rank}.sha256`, entry.sha256, isSum, "64 hexadecimal digits");
  }
  return manifest;
}

/** Throws for an invalid field. */
type Need = (field: string, found: unknown, isRight: boolean, needed: string) => void;

function needParts(need: Need, shared: Manifest["shared"]): void {
  needPairs(need, "shared", shared, isPartName);
  for (const [part, { values, tensors }] of shared) {
    need(`values of "${part}"`, values, isRecord(values), "an object");
    needPairs(need, `tensors of "${part}"`, tensors, (name) => typeof name === "string");
    for (const [name, { dtype, shape }] of tensors) {
      const field = `tensor "${part}/${name}"`;
      need(field, dtype, isDType(dtype), "a dtype");
      const isShape = Array.isArray(shape) && shape.every((extent) => isCount(extent, 0));
      need(field, shape, isShape, "a shape of integers of at least 0");
      const bytes = elementsOf(shape) * bytesOf(dtype);
      need(field, bytes, isCount(bytes, 0), "bytes that an integer counts");
    }
  }
}

/** Pairs of a name, each once, and an object. */
function needPairs(
  need: Need,
  field: string,
  pairs: unknown,
  isName: (value: unknown) => boolean,
): void {
  need(field, pairs, Array.isArray(pairs), "an array");
  for (const pair of pairs as unknown[]) {
    const isPair = Array.isArray(pair) && pair.length === 2 && isRecord(pair[1]);
    need(field, pair, isPair, "pairs of a name and an object");
  }
  const names = (pairs as unknown[][]).map(([name]) => name);
  needNames(need, field, names, isName);
}

/** Names, each once. */
function needNames(
  need: Need,
  field: string,
  names: unknown,
  isName: (value: unknown) => boolean,
): void {
  need(field, names, Array.isArray(names), "an array");
  const seen = new Set<unknown>();
  for (const name of names as unknown[]) {
    need(field, name, isName(name), "a name");
    need(field, name, !seen.has(name), "each name once");
    seen.add(name);
  }
}

/** Names of parts have no "/", which separates them from the names of their tensors. */
export function isPartName(name: unknown): boolean {
  return typeof name === "string" && name !== "" && !name.includes("/");
}

/** SHA-256 in hexadecimal digits. */
export async function sha256Of(bytes: Uint8Array): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>);
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The folders of saves: the existing ones, the next number, and those to remove.

/** The numbers of all saves, complete or not, ascending. */
async function saves(files: CheckpointFiles): Promise<number[]> {
  const numbers = (await files.list("")).map(saveOf);
  return numbers.filter((each) => each !== undefined).sort((a, b) => a - b);
}

/** The numbers of the saves with a manifest, ascending. */
export async function committedSaves(files: CheckpointFiles): Promise<number[]> {
  const committed: number[] = [];
  for (const save of await saves(files)) {
    if ((await files.list(folderOf(save))).includes("manifest.json")) committed.push(save);
  }
  return committed;
}

/** The manifests of all complete saves, oldest first. */
export async function completeSaves(files: CheckpointFiles): Promise<Manifest[]> {
  const manifests: Manifest[] = [];
  for (const save of await committedSaves(files)) manifests.push(await readManifest(files, save));
  return manifests;
}

/** A number above all saves, interrupted ones included. */
export async function nextSave(files: CheckpointFiles): Promise<number> {
  return ((await saves(files)).at(-1) ?? 0) + 1;
}

/** Removes complete saves but the newest `keep`, and interrupted ones before `newest`. */
export async function prune(files: CheckpointFiles, newest: number, keep: number): Promise<void> {
  const kept = (await committedSaves(files)).slice(-keep);
  for (const save of await saves(files)) {
    if (save >= newest || kept.includes(save)) continue;
    // Without its manifest first: a removal that is interrupted leaves no save that looks complete.
    await files.remove(manifestPath(save));
    await files.remove(folderOf(save));
  }
}
