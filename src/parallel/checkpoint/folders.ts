/** The folders of saves: which there are, which number comes next, which are no longer kept. */
import type { CheckpointFiles } from "./files.ts";
import { folderOf, type Manifest, manifestPath, readManifest, saveOf } from "./manifest.ts";

/** The numbers of all saves, complete or not, ascending. */
async function saves(files: CheckpointFiles): Promise<number[]> {
  const numbers = (await files.list("")).map(saveOf);
  return numbers.filter((each) => each !== undefined).sort((a, b) => a - b);
}

/** The numbers of the saves that have a manifest, ascending. */
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

/** A number that no save has had, interrupted ones included. */
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
