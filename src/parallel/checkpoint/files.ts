/**
 * The operations of a file system that checkpoints need, and nothing more: so that they also work where there is none.
 *
 * Paths are relative, their parts parted by `/`.
 */
import { invalid, textOf } from "../../api/option-kinds.ts";

/** Where checkpoints are kept. All ranks see the same files. */
export interface CheckpointFiles {
  /** Writes a whole file and the folders it lies in; when it resolves, the file outlives a crash. */
  write(path: string, bytes: Uint8Array): Promise<void>;
  /** Gives a file another name in its folder, at once: whatever happens, it has the old name or the new one. */
  rename(from: string, to: string): Promise<void>;
  /** All bytes of a file; rejects where there is none. The path is one that `write` or `rename` has had. */
  read(path: string): Promise<Uint8Array>;
  /** The names in a folder, in any order; none where there is no such folder. `""` is the topmost one. */
  list(folder: string): Promise<string[]>;
  /** Removes a file, or a folder with all that is in it; does nothing where there is none. */
  remove(path: string): Promise<void>;
}

/** Refuses what lacks one of the five functions. */
export function assertFiles(files: CheckpointFiles): void {
  const found = (files ?? {}) as unknown as Readonly<Record<string, unknown>>;
  const needed = ["write", "rename", "read", "list", "remove"];
  const lacks = needed.find((name) => typeof found[name] !== "function");
  if (lacks === undefined) return;
  throw invalid(
    "Checkpoints",
    "files",
    `${textOf(files)} without ${lacks}()`,
    "a CheckpointFiles",
    'pass directoryFiles("run-7") or memoryFiles()',
  );
}

/**
 * Files in memory: for tests, and for browsers, where the caller carries them elsewhere.
 *
 * @example
 * const files = memoryFiles();
 */
export function memoryFiles(): CheckpointFiles {
  const files = new Map<string, Uint8Array>();
  const present = (path: string): Uint8Array => {
    const bytes = files.get(path);
    if (bytes === undefined) throw new Error(`"${path}": no such file in memory`);
    return bytes;
  };
  return {
    write: async (path, bytes) => void files.set(path, bytes.slice()),
    rename: async (from, to) => {
      files.set(to, present(from));
      files.delete(from);
    },
    read: async (path) => present(path).slice(),
    list: async (folder) => {
      const begin = folder === "" ? "" : `${folder}/`;
      const inside = [...files.keys()].filter((path) => path.startsWith(begin));
      return [...new Set(inside.map((path) => path.slice(begin.length).split("/")[0] as string))];
    },
    remove: async (path) => {
      for (const each of [...files.keys()]) {
        if (each === path || each.startsWith(`${path}/`)) files.delete(each);
      }
    },
  };
}
