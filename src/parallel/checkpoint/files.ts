/**
 * The operations of a file system that checkpoints need: in memory, and in a directory of Node.
 *
 * Paths are relative, their parts separated by `/`.
 */

import { UnsupportedError } from "../../api/index.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import { runtimeProcess } from "../../api/runtime-process.ts";

/** The storage of checkpoints. All ranks see the same files. */
export interface CheckpointFiles {
  /** Writes a whole file and creates its folders; when it resolves, the file outlives a crash. */
  write(path: string, bytes: Uint8Array): Promise<void>;
  /** Renames a file within its folder, atomically: after a crash it has the old name or the new one. */
  rename(from: string, to: string): Promise<void>;
  /** All bytes of a file; rejects where there is none. The path was passed to `write` or `rename` before. */
  read(path: string): Promise<Uint8Array>;
  /** The names in a folder, in any order; empty for a missing folder. `""` is the topmost one. */
  list(folder: string): Promise<string[]>;
  /** Removes a file, or a folder with its contents; ignores a missing path. */
  remove(path: string): Promise<void>;
}

/** Refuses an object that lacks one of the five functions. */
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
 * Files in memory: for tests, and for browsers, where the caller stores them elsewhere.
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

// Checkpoints in a directory, in Node: the only part of `twinccl/parallel` that needs it.
//
// Node's modules are loaded on use, so that this file loads anywhere. A written file is flushed to disk, and so is a folder
// after a new name in it.

interface Handle {
  writeFile(bytes: Uint8Array): Promise<void>;
  sync(): Promise<void>;
  close(): Promise<void>;
}

/** The used part of `node:fs/promises`. */
interface FileSystem {
  mkdir(path: string, options: { readonly recursive: true }): Promise<string | undefined>;
  open(path: string, flags: string): Promise<Handle>;
  readFile(path: string, options: { readonly flag: number }): Promise<Uint8Array>;
  realpath(path: string): Promise<string>;
  lstat(path: string): Promise<{ isFile(): boolean }>;
  /** The last two are missing on some systems. */
  readonly constants: {
    readonly O_RDONLY: number;
    readonly O_NOFOLLOW?: number;
    readonly O_NONBLOCK?: number;
  };
  readdir(path: string): Promise<string[]>;
  rename(from: string, to: string): Promise<void>;
  rm(path: string, options: { readonly recursive: true; readonly force: true }): Promise<void>;
}

/** The used part of `node:path`. */
interface Paths {
  resolve(path: string): string;
  dirname(path: string): string;
  join(...paths: string[]): string;
  readonly sep: string;
}

/**
 * Keeps checkpoints in a directory, which is created for the first one. All processes of a job must see the same directory.
 *
 * The directory may be a link. Only regular files in it are read, and no link below it is followed: `read` rejects with an
 * `InvalidArgumentError` before it opens anything else.
 *
 * @throws InvalidArgumentError for a value that is not a path; an empty text would be the root of the file system.
 * @throws UnsupportedError outside of Node.
 * @example
 * const checkpoints = new Checkpoints(comm, directoryFiles("run-7"));
 */
export function directoryFiles(directory: string): CheckpointFiles {
  if (typeof directory !== "string" || directory === "") {
    throw invalid(
      "directoryFiles",
      "directory",
      textOf(directory),
      "a path",
      'such as "run-7"; of a file: URL, fileURLToPath gives it',
    );
  }
  const runtime = runtimeProcess();
  const fs = runtime?.getBuiltinModule?.("node:fs/promises") as FileSystem | undefined;
  const paths = runtime?.getBuiltinModule?.("node:path") as Paths | undefined;
  if (fs === undefined || paths === undefined) {
    throw new UnsupportedError({
      headline: "directoryFiles: this runtime has no node:fs, needs Node 20.16 or later",
      hint: "keep checkpoints in memoryFiles(), or write a CheckpointFiles of your own",
    });
  }
  const at = (path: string): string => (path === "" ? directory : `${directory}/${path}`);
  return {
    write: async (path, bytes) => {
      await makeFolder(fs, paths, at(parent(path)));
      const file = await fs.open(at(path), "w");
      try {
        await file.writeFile(bytes);
        await file.sync();
      } finally {
        await file.close();
      }
      await syncFolder(fs, at(parent(path)));
    },
    rename: async (from, to) => {
      await fs.rename(at(from), at(to));
      await syncFolder(fs, at(parent(to)));
    },
    read: async (path) => {
      await assertInside(fs, paths, directory, path);
      // Between the check and the opening a link or a FIFO may have replaced it.
      const { O_RDONLY, O_NOFOLLOW = 0, O_NONBLOCK = 0 } = fs.constants;
      return await fs.readFile(at(path), { flag: O_RDONLY | O_NOFOLLOW | O_NONBLOCK });
    },
    list: async (folder) => {
      try {
        return await fs.readdir(at(folder));
      } catch (error) {
        if ((error as { readonly code?: string }).code === "ENOENT") return [];
        throw error;
      }
    },
    remove: (path) => fs.rm(at(path), { recursive: true, force: true }),
  };
}

/** Refuses all but regular files, and paths through a link or `..`, without opening them. */
async function assertInside(
  fs: FileSystem,
  paths: Paths,
  directory: string,
  path: string,
): Promise<void> {
  const real = await fs.realpath(`${directory}/${path}`);
  const root = paths.join(await fs.realpath(directory), paths.sep);
  const isInside = real === root + path.replaceAll("/", paths.sep);
  if (isInside && (await fs.lstat(real)).isFile()) return;
  const found = isInside ? "what is no file" : `what is at ${JSON.stringify(real)}`;
  throw invalid(
    "directoryFiles",
    JSON.stringify(path),
    found,
    "a regular file, not behind a link",
    "put the file itself there; the directory may be a link, what lies in it may not",
    { field: "path" },
  );
}

function parent(path: string): string {
  return path.split("/").slice(0, -1).join("/");
}

/** Creates a folder and its missing parents, so that they outlive a crash. */
async function makeFolder(fs: FileSystem, paths: Paths, folder: string): Promise<void> {
  const first = await fs.mkdir(folder, { recursive: true });
  if (first === undefined) return;
  // A folder's name is stored in its parent.
  for (let made = paths.resolve(folder); ; made = paths.dirname(made)) {
    await syncFolder(fs, paths.dirname(made));
    if (made === paths.resolve(first) || made === paths.dirname(made)) return;
  }
}

/** Flushes the names in a folder, on systems that can open a folder (Windows cannot). */
async function syncFolder(fs: FileSystem, folder: string): Promise<void> {
  let handle: Handle;
  try {
    handle = await fs.open(folder, "r");
  } catch (error) {
    const { code } = error as { readonly code?: string };
    if (code === "EISDIR" || code === "EPERM" || code === "EACCES") return;
    throw error;
  }
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
