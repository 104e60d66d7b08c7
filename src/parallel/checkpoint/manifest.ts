/**
 * The manifest of a checkpoint: what is in it, and which files with which checksums are it.
 *
 * A checkpoint exists from the moment its manifest has its name. The manifest carries a checksum of itself, so that it is
 * whole or refused.
 */
import { type DType, isDType } from "../../api/index.ts";
import type { StateValue } from "../state.ts";
import type { CheckpointFiles } from "./files.ts";
import { FileFault } from "./together.ts";

/** A tensor as the manifest lists it. */
export interface TensorLine {
  readonly dtype: DType;
  readonly shape: readonly number[];
}

/** A part that all ranks share. */
export interface SharedPart {
  readonly values: Readonly<Record<string, StateValue>>;
  /** In the order of names, which the cut follows. */
  readonly tensors: readonly (readonly [string, TensorLine])[];
}

/** One rank's file. */
export interface FileLine {
  readonly path: string;
  readonly bytes: number;
  readonly sha256: string;
}

/** What these files are, and how they are laid out. */
export const format = "twinccl-checkpoint-1" as const;

/** A complete checkpoint. */
export interface Manifest {
  readonly format: typeof format;
  /** Counts the saves into these files, from 1. */
  readonly save: number;
  readonly step: number;
  /** Ranks that wrote it. */
  readonly size: number;
  /** In the order of names. */
  readonly shared: readonly (readonly [string, SharedPart])[];
  /** Names of the parts that every rank has of its own. */
  readonly perRank: readonly string[];
  /** By rank. */
  readonly files: readonly FileLine[];
}

const DAMAGED = "it is damaged: load an earlier save by its number, or remove this folder";

/** The folder of a save. */
export function folderOf(save: number): string {
  return `save-${String(save).padStart(8, "0")}`;
}

/** The save a folder is for; `undefined` for a name that is none. */
export function saveOf(folder: string): number | undefined {
  const found = /^save-(\d{8,})$/.exec(folder)?.[1];
  return found === undefined ? undefined : Number(found);
}

/** The file of a rank. */
export function rankPath(save: number, rank: number, size: number): string {
  const digits = (value: number): string => String(value).padStart(5, "0");
  return `${folderOf(save)}/rank-${digits(rank)}-of-${digits(size)}.safetensors`;
}

/** Where the manifest of a save lies. */
export function manifestPath(save: number): string {
  return `${folderOf(save)}/manifest.json`;
}

/** Writes a manifest under another name and gives it its own when it is whole. */
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
 * @throws FileFault when it is not there, not whole, or of another format.
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
  const text = new TextDecoder().decode(await files.read(path));
  const found = /^\{"sha256":"([0-9a-f]{64})","manifest":(.*)\}\n$/s.exec(text);
  const [, sha256, body = ""] = found ?? [];
  if (sha256 === undefined || (await sha256Of(new TextEncoder().encode(body))) !== sha256) {
    throw new FileFault(path, "is torn: its checksum does not fit", DAMAGED);
  }
  const manifest = JSON.parse(body) as Manifest;
  if (manifest.format !== format) {
    throw new FileFault(
      path,
      `has the format "${manifest.format}"`,
      "read it with its own program",
    );
  }
  if (manifest.save !== save) {
    throw new FileFault(path, `belongs to save ${manifest.save}`, DAMAGED);
  }
  for (const [, { tensors }] of manifest.shared) {
    const unknown = tensors.find(([, { dtype }]) => !isDType(dtype));
    if (unknown !== undefined) throw new FileFault(path, `has an unknown dtype`, DAMAGED);
  }
  return manifest;
}

/** SHA-256 in hexadecimal digits. */
export async function sha256Of(bytes: Uint8Array): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>);
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
