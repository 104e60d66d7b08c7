/** Where the native libraries may be: every path that is tried, in order, with the reason it is on the list. */
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";

/** A path that is handed to the loader, or a bare name that the loader resolves itself. */
export interface Place {
  readonly path: string;
  readonly why: string;
  /** Why there is nothing to load, where that was seen already: of a folder without such a file. */
  readonly lacks?: string;
}

/** The caller's and the environment's settings for one library. */
export interface LibraryWish {
  /** File names, newest first, such as `libcudart.so.13`. */
  readonly names: readonly string[];
  /** The path that an option of `nccl()` gave. */
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
 * The places to try. A path that the caller or the environment names is the only one: nothing else is tried instead.
 */
export function places(wish: LibraryWish, env: NodeJS.ProcessEnv = process.env): Place[] {
  const { names, option, variable, wheels } = wish;
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

function inWheels(names: readonly string[], wheels: readonly string[]): Place[] {
  const folders = sitePackages().flatMap((site) => wheels.map((wheel) => join(site, wheel)));
  if (folders.length > 0) return filesIn(folders, names, "pip wheel");
  return [{ path: pythons.join(", "), why: "pip wheel", lacks: "no Python lists its folders" }];
}

function cudaHomes(env: NodeJS.ProcessEnv): string[] {
  const homes = [env["CUDA_HOME"], env["CUDA_PATH"], env["NCCL_HOME"], env["CONDA_PREFIX"]];
  return homes.flatMap((home) =>
    home === undefined || home === "" ? [] : [join(home, "lib64"), join(home, "lib")],
  );
}

function filesIn(folders: readonly string[], names: readonly string[], why: string): Place[] {
  return folders.flatMap((folder): Place[] => {
    const files = filesOf(folder);
    if (typeof files === "string") return [{ path: folder, why, lacks: files }];
    const found = names.filter((name) => files.has(name));
    if (found.length === 0) return [{ path: folder, why, lacks: `holds no ${names.join(", ")}` }];
    return found.map((name) => ({ path: join(folder, name), why }));
  });
}

/** The names in a folder, or why there are none. */
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

/** Python's site directories: Python prints its paths alone, isolated from the user's settings. */
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
