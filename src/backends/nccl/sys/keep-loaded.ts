/**
 * Keeps a native library in memory until the process is gone.
 *
 * koffi unloads its libraries when Node.js takes itself down. The threads that NCCL and CUDA have started then run into code
 * that is no longer there, and the process ends with a segmentation fault instead of its status.
 */
import { koffi } from "./koffi.ts";

/** Flags of `dlopen` on Linux: resolve now, and never unload. */
const now = 0x2;
const neverUnload = 0x1000;

type Dlopen = (path: string, flags: number) => bigint | null;

let dlopen: Promise<Dlopen | undefined> | undefined;

/** Loads the library once more, never to be unloaded; does nothing where that cannot be said. */
export async function keepLoaded(path: string): Promise<void> {
  if (process.platform !== "linux") return;
  dlopen ??= findDlopen();
  (await dlopen)?.(path, now | neverUnload);
}

async function findDlopen(): Promise<Dlopen | undefined> {
  const { load } = await koffi();
  // Older C libraries have it in a library of its own.
  for (const name of ["libc.so.6", "libdl.so.2"]) {
    try {
      return load(name).func("void* dlopen(const char* path, int flags)") as unknown as Dlopen;
    } catch {
      // The next one may have it.
    }
  }
  return undefined;
}
