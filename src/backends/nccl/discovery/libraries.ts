/** Finds and loads libcudart and libnccl; errors have every tried path. */

import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { BackendUnavailableError } from "../../../api/index.ts";
import { type CudaCalls, cudaCalls } from "../result/cuda.ts";
import { type NcclCalls, ncclCalls } from "../result/nccl.ts";
import { cudaTable } from "../sys/cuda.ts";
import { helper } from "../sys/helper.ts";
import { prepareHostView } from "../sys/koffi.ts";
import { ncclTable } from "../sys/nccl.ts";
import { type Bound, bind, type PrototypeTable } from "../sys/prototype.ts";

/** Paths of libraries, given by the caller. */
export interface LibraryPaths {
  /** libnccl; also `TWINCCL_NCCL_LIBRARY`. */
  readonly nccl?: string | undefined;
  /** libcudart; also `TWINCCL_CUDART_LIBRARY`. */
  readonly cudart?: string | undefined;
}

/** One tried path. */
export interface Trial extends LibraryCandidate {
  readonly ok: boolean;
  /** The loader's message after a failure. */
  readonly reason: string;
}

/** Both libraries, loaded. */
export interface Libraries {
  readonly cuda: CudaCalls;
  readonly nccl: NcclCalls;
  /** Version code of NCCL, such as 22809. */
  readonly ncclVersion: number;
}

/** Oldest supported NCCL, the first with `ncclCommSplit`. */
const oldestNccl = 21800;

/** The search for each library. Only `examine` uses NVML and libcuda. */
export function librarySearches(
  paths: LibraryPaths,
): Readonly<Record<"cudart" | "nccl" | "nvml" | "cuda", LibrarySearch>> {
  return {
    cudart: {
      names: ["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"],
      option: paths.cudart,
      variable: "TWINCCL_CUDART_LIBRARY",
      wheels: ["nvidia/cu13/lib", "nvidia/cuda_runtime/lib"],
    },
    nccl: {
      names: ["libnccl.so.2", "libnccl.so"],
      option: paths.nccl,
      variable: "TWINCCL_NCCL_LIBRARY",
      wheels: ["nvidia/nccl/lib"],
    },
    nvml: {
      names: ["libnvidia-ml.so.1"],
      option: undefined,
      variable: "TWINCCL_NVML_LIBRARY",
      wheels: [],
    },
    cuda: {
      names: ["libcuda.so.1"],
      option: undefined,
      variable: "TWINCCL_CUDA_LIBRARY",
      wheels: [],
    },
  };
}

/** Tries the candidates of one library, up to the first that loads. */
export async function firstLoadable<T extends PrototypeTable>(
  search: LibrarySearch,
  table: T,
  trials: Trial[],
): Promise<Bound<T> | undefined> {
  for (const { fault, ...place } of candidatesOf(search)) {
    if (fault !== undefined) {
      trials.push({ ...place, ok: false, reason: fault });
      continue;
    }
    try {
      const bound = await bind(place.path, table);
      const ok = Object.values(bound).some((found) => found !== undefined);
      const another = `another library: it has no function of ${search.names[0]}`;
      trials.push({ ...place, ok, reason: ok ? "loaded" : another });
      if (ok) return bound;
    } catch (error) {
      if (error instanceof BackendUnavailableError) throw error;
      trials.push({ ...place, ok: false, reason: reasonOf(error) });
    }
  }
  return undefined;
}

const loaded = new Map<string, Promise<Libraries>>();

/**
 * Loads both libraries; the result is cached by paths.
 *
 * @throws BackendUnavailableError with all tried paths, or the version if it is too old.
 */
export function loadLibraries(paths: LibraryPaths = {}): Promise<Libraries> {
  const key = JSON.stringify([paths.cudart, paths.nccl]);
  let found = loaded.get(key);
  if (found === undefined) {
    found = load(paths);
    found.catch(() => loaded.delete(key));
    loaded.set(key, found);
  }
  return found;
}

async function load(paths: LibraryPaths): Promise<Libraries> {
  const trials: Trial[] = [];
  const searches = librarySearches(paths);
  const cudart = await firstLoadable(searches.cudart, cudaTable, trials);
  if (cudart === undefined) throw notFound("libcudart", searches.cudart, trials);
  const libnccl = await firstLoadable(searches.nccl, ncclTable, trials);
  if (libnccl === undefined) throw notFound("libnccl", searches.nccl, trials);
  await prepareHostView();
  const found = await helper();
  const lists = typeof found === "string" ? undefined : found;
  const nccl = ncclCalls(libnccl, lists);
  const ncclVersion = nccl.version();
  if (ncclVersion < oldestNccl) {
    throw new BackendUnavailableError({
      headline: `NCCL ${versionText(ncclVersion)} is older than ${versionText(oldestNccl)}, the oldest that works here`,
      table: trials.map(({ path, reason }) => [path, reason]),
      hint: "install a newer NCCL, or name one with TWINCCL_NCCL_LIBRARY",
    });
  }
  return { cuda: cudaCalls(cudart, lists), nccl, ncclVersion };
}

/** `2.28.9` for 22809, and `2.8.4` for 2804: up to 2.8 the minor version has one digit. */
export function versionText(code: number): string {
  const perMajor = code < 10_000 ? 1_000 : 10_000;
  const [major, rest] = [Math.floor(code / perMajor), code % perMajor];
  return `${major}.${Math.floor(rest / 100)}.${rest % 100}`;
}

function notFound(
  library: string,
  { names, variable }: LibrarySearch,
  trials: readonly Trial[],
): BackendUnavailableError {
  return new BackendUnavailableError({
    headline: `${library} was not found`,
    table: trials.map(({ path, why, reason }) => [path, why, reason]),
    hint: `install it (${names[0]}), or name its path in ${variable}`,
  });
}

function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.replace(/^Failed to load shared library: /, "");
}

/** A path for the loader, or a bare name that the loader resolves. */
interface LibraryCandidate {
  readonly path: string;
  readonly why: string;
  /** Reason for skipping the candidate, such as a folder without the file. */
  readonly fault?: string;
}

/** The caller's and the environment's settings for one library. */
interface LibrarySearch {
  /** File names, newest first, such as `libcudart.so.13`. */
  readonly names: readonly string[];
  /** Path from the options of `nccl()`. */
  readonly option: string | undefined;
  /** The environment variable that names a path. */
  readonly variable: string;
  /** Folders of pip wheels below a site directory. */
  readonly wheels: readonly string[];
}

/** CUDA's usual folders. */
const usualFolders = [
  "/usr/local/cuda/lib64",
  "/usr/local/cuda/targets/x86_64-linux/lib",
  "/opt/cuda/lib64",
  "/usr/lib/x86_64-linux-gnu",
  "/usr/lib/aarch64-linux-gnu",
  "/usr/lib64",
  "/usr/local/lib",
];

const pythonTimeoutMs = 2000;

/**
 * The candidates of a search. A path from the options or the environment is the only candidate.
 *
 * @internal
 */
export function candidatesOf(
  search: LibrarySearch,
  env: NodeJS.ProcessEnv = process.env,
): LibraryCandidate[] {
  const { names, option, variable, wheels } = search;
  if (option !== undefined) return [{ path: option, why: "option" }];
  const named = env[variable];
  if (named !== undefined && named !== "") return [{ path: named, why: variable }];
  return [
    ...names.map((path) => ({ path, why: "loader path" })),
    ...filesIn(cudaHomes(env), names, "CUDA folder"),
    ...filesIn(usualFolders, names, "usual folder"),
    ...(wheels.length === 0 ? [] : inWheels(names, wheels)),
  ];
}

function inWheels(names: readonly string[], wheels: readonly string[]): LibraryCandidate[] {
  const folders = sitePackages().flatMap((site) => wheels.map((wheel) => join(site, wheel)));
  if (folders.length > 0) return filesIn(folders, names, "pip wheel");
  return [{ path: pythons.join(", "), why: "pip wheel", fault: "no Python lists its folders" }];
}

function cudaHomes(env: NodeJS.ProcessEnv): string[] {
  const homes = [env["CUDA_HOME"], env["CUDA_PATH"], env["NCCL_HOME"], env["CONDA_PREFIX"]];
  return homes.flatMap((home) =>
    home === undefined || home === "" ? [] : [join(home, "lib64"), join(home, "lib")],
  );
}

function filesIn(
  folders: readonly string[],
  names: readonly string[],
  why: string,
): LibraryCandidate[] {
  return folders.flatMap((folder): LibraryCandidate[] => {
    const files = filesOf(folder);
    if (typeof files === "string") return [{ path: folder, why, fault: files }];
    const found = names.filter((name) => files.has(name));
    if (found.length === 0) return [{ path: folder, why, fault: `holds no ${names.join(", ")}` }];
    return found.map((name) => ({ path: join(folder, name), why }));
  });
}

/** The names in a folder, or the reason of the failure. */
function filesOf(folder: string): ReadonlySet<string> | string {
  try {
    return new Set(readdirSync(folder));
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return code === "ENOENT" ? "no such folder" : message;
  }
}

const pythons = ["python3", "python"];

let sites: readonly string[] | undefined;

/** Python's site directories, printed by an isolated Python (`-I`). */
function sitePackages(): readonly string[] {
  sites ??= pythons.map(sitesOf).find((found) => found.length > 0) ?? [];
  return sites;
}

function sitesOf(python: string): string[] {
  const script =
    "import site, sys; print('\\n'.join(dict.fromkeys(site.getsitepackages() + [site.getusersitepackages()] + [p for p in sys.path if p.endswith('-packages')])))";
  const { status, stdout } = spawnSync(python, ["-I", "-c", script], {
    encoding: "utf8",
    timeout: pythonTimeoutMs,
    stdio: ["ignore", "pipe", "ignore"],
  });
  return status === 0 ? stdout.split("\n").filter((line) => line !== "") : [];
}
