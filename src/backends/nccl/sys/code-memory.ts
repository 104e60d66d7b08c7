/** Memory that lives until the process exits: writable pages, and this library's machine code. */
import { firstLine } from "../../../api/error-text.ts";
import { koffi } from "./koffi.ts";

/** Machine code: each instruction in GNU assembler syntax, with its bytes in hexadecimal. */
export type MachineCode = readonly (readonly [assembly: string, bytes: string])[];

/** Size of a page. Code has a separate page, which is never writable and executable at once. */
export const pageBytes = 4096;

/** Pages of memory: their address, and a view for JavaScript. */
export interface Pages {
  readonly address: bigint;
  readonly buffer: ArrayBuffer;
}

const [readable, writable, executable] = [1, 2, 4];
const privateAnonymous = 0x22;
const failed = 2n ** 64n - 1n;

/** The system calls for pages. */
export interface PageCalls {
  /** Maps pages of zeros; `undefined` if the system refuses. */
  take(count: number): Pages | undefined;
  /** Makes the first page executable and no longer writable; false if the system refuses. */
  freeze(pages: Pages): boolean;
}

/** Finds the system calls. */
export async function pageCalls(): Promise<PageCalls> {
  const { address, load, view } = await koffi();
  const libc = load("libc.so.6");
  const mmap = libc.func("void* mmap(void* at, size_t bytes, int may, int flags, int fd, long of)");
  const mprotect = libc.func("int mprotect(void* at, size_t bytes, int may)");
  return {
    take(count) {
      const bytes = count * pageBytes;
      const memory = mmap(null, bytes, readable | writable, privateAnonymous, -1, 0);
      const start = address(memory);
      if (BigInt.asUintN(64, start) === failed) return undefined;
      return { address: start, buffer: view(memory, bytes) };
    },
    freeze: (pages) => mprotect(pages.address, pageBytes, readable | executable) === 0,
  };
}

/** Maps code in a separate page, followed by a writable page; or returns the reason of the failure. */
export async function mapCode(code: MachineCode): Promise<Pages | string> {
  const { arch, platform } = process;
  if (platform !== "linux" || arch !== "x64") return `there is no code for ${platform} on ${arch}`;
  try {
    const { take, freeze } = await pageCalls();
    const pages = take(2);
    if (pages === undefined) return "the system gives no memory for code";
    new Uint8Array(pages.buffer).set(bytesOf(code));
    return freeze(pages) ? pages : "the system runs no code that a process has written";
  } catch (error) {
    return `no memory for code: ${firstLine(error)}`;
  }
}

function bytesOf(code: MachineCode): Uint8Array {
  const digits = code.flatMap(([, bytes]) => bytes.split(" "));
  return Uint8Array.from(digits, (byte) => Number.parseInt(byte, 16));
}
