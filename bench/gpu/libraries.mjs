// Where NCCL and the CUDA runtime lie: one file each, which every peer of a comparison then uses.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";

/** Python's site directories, without importing anything. */
function siteFolders() {
  const script =
    "import site, sys; print('\\n'.join(dict.fromkeys(site.getsitepackages() + [site.getusersitepackages()] + [p for p in sys.path if p.endswith('-packages')])))";
  const { status, stdout } = spawnSync("python3", ["-I", "-c", script], {
    encoding: "utf8",
    timeout: 5000,
  });
  return status === 0 ? stdout.split("\n").filter((line) => line !== "") : [];
}

/** The first existing file among folders and names, newest name first. */
function firstFile(folders, pattern) {
  for (const folder of folders) {
    const found = existsSync(folder)
      ? readdirSync(folder).filter((name) => pattern.test(name))
      : [];
    const name = found.sort((a, b) => b.length - a.length || (a < b ? 1 : -1))[0];
    if (name !== undefined) return join(folder, name);
  }
  return undefined;
}

/** CUDA's folders, `/usr/local/cuda` first, then those with a version in their name. */
const toolkits = [
  ...[process.env.CUDA_HOME, process.env.CUDA_PATH].filter((path) => path),
  ...readdirSync("/usr/local")
    .filter((name) => name.startsWith("cuda"))
    .sort()
    .map((name) => join("/usr/local", name)),
];
const systemLibraries = [
  ...toolkits.flatMap((toolkit) => [join(toolkit, "lib64"), join(toolkit, "lib")]),
  "/usr/lib/x86_64-linux-gnu",
  "/usr/lib/aarch64-linux-gnu",
  "/usr/lib64",
  "/usr/local/lib",
];
const systemIncludes = [
  ...toolkits.map((toolkit) => join(toolkit, "include")),
  "/usr/include",
  "/usr/local/include",
];

/**
 * NCCL and the CUDA runtime with their headers. The wheels come first, because torch uses those; a file that
 * TWINCCL_NCCL_LIBRARY or TWINCCL_CUDART_LIBRARY names counts before.
 */
export function findLibraries(env = process.env) {
  const wheels = siteFolders().map((site) => join(site, "nvidia"));
  const below = (...parts) => wheels.flatMap((wheel) => parts.map((part) => join(wheel, part)));
  const nccl =
    env.TWINCCL_NCCL_LIBRARY ||
    firstFile([...below("nccl/lib"), ...systemLibraries], /^libnccl\.so\.2$/);
  const cudart =
    env.TWINCCL_CUDART_LIBRARY ||
    firstFile(
      [...below("cu13/lib", "cuda_runtime/lib"), ...systemLibraries],
      /^libcudart\.so\.1[1-3](\.0)?$/,
    );
  const beside = (library) =>
    library === undefined ? [] : [join(dirname(dirname(library)), "include")];
  const include = (name, folders) => folders.find((folder) => existsSync(join(folder, name)));
  return {
    nccl,
    cudart,
    ncclInclude: include("nccl.h", [...beside(nccl), ...below("nccl/include"), ...systemIncludes]),
    // The toolkit's first: a wheel may lack headers that others include.
    cudaInclude: include("cuda_runtime.h", [
      ...systemIncludes,
      ...beside(cudart),
      ...below("cu13/include", "cuda_runtime/include"),
    ]),
  };
}
