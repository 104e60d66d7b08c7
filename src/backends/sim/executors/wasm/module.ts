/** The compiled module: whether this runtime can run it, and its instances. */
import { getOrCreate } from "../../../../api/get-or-create.ts";
import { BackendUnavailableError } from "../../../../api/index.ts";
import { memoryFlagsAt, wasmBase64 } from "./binary.js";

/** The exports of the module. */
export interface Kernels {
  /** Folds bytes `from` to `to` of a list of groups; see assembly/groups.ts. */
  runSlice(list: number, groups: number, from: number, to: number, scratch: number): void;
}

/** Flags of an imported memory: it has a maximum, and is shared or not. */
const memoryFlags = { shared: 3, own: 1 } as const;

/** Pages that the module's import allows; of 64 KiB each. */
export const maxPages = 65_536;

const modules = new Map<boolean, WasmModule>();

/** A function with one 128-bit addition: valid where SIMD exists. */
const simdProbe: Uint8Array = Uint8Array.of(
  ...[0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0],
  ...[253, 15, 253, 98, 11],
);

/** True where this runtime has WebAssembly with SIMD. */
export function hasSimd(): boolean {
  return webAssembly?.validate(simdProbe) === true;
}

/** True where memory can be shared with worker threads: browsers require isolated pages. */
export function canShare(): boolean {
  const { crossOriginIsolated } = globalThis as { readonly crossOriginIsolated?: boolean };
  return typeof SharedArrayBuffer === "function" && crossOriginIsolated !== false;
}

/**
 * Compiles the module asynchronously; browsers refuse to compile large ones synchronously.
 *
 * @throws BackendUnavailableError where the runtime compiles no code, as in a page with a policy against it.
 */
export async function compile(shared: boolean): Promise<void> {
  if (modules.has(shared)) return;
  const webAssembly = runtime();
  try {
    modules.set(shared, await webAssembly.compile(binary(shared)));
  } catch (cause) {
    throw new BackendUnavailableError(
      {
        headline: "sim: executor wasm: the runtime does not compile WebAssembly here",
        hint: "take cpu(), or allow 'wasm-unsafe-eval' in the Content-Security-Policy of the page (script-src)",
      },
      { cause },
    );
  }
}

/** The module for shared memory or for memory of one thread. */
export function compiled(shared: boolean): WasmModule {
  return getOrCreate(modules, shared, () => new (runtime().Module)(binary(shared)));
}

/** The module's functions over a memory. */
export function instantiate(module: WasmModule, memory: WasmLinearMemory): Kernels {
  const { exports } = new (runtime().Instance)(module, { env: { memory } });
  return exports as unknown as Kernels;
}

/**
 * New memory that can grow to as many pages as the module's import allows.
 *
 * @throws BackendUnavailableError when the process has no addresses left for it. V8 takes 10 GiB of them for each memory,
 * whatever its maximum is.
 */
export function newMemory(shared: boolean, pages: number): WasmLinearMemory {
  try {
    return new (runtime().Memory)({ initial: pages, maximum: maxPages, shared });
  } catch (cause) {
    throw new BackendUnavailableError(
      {
        headline:
          "sim: executor wasm: no addresses are left for its memory, which reserves some 10 GiB of them, not of memory",
        hint: "let worlds share one wasm(), as those do that name no executor; close worlds; raise the limit (ulimit -v); or take cpu()",
      },
      { cause },
    );
  }
}

function runtime(): WasmRuntime {
  if (webAssembly !== undefined) return webAssembly;
  throw new BackendUnavailableError({ headline: "sim: executor wasm: no WebAssembly here" });
}

function binary(shared: boolean): Uint8Array {
  const bytes = Uint8Array.from(atob(wasmBase64), (char) => char.charCodeAt(0));
  bytes[memoryFlagsAt] = shared ? memoryFlags.shared : memoryFlags.own;
  return bytes;
}

/** A compiled module; threads may share it. */
export interface WasmModule {
  readonly [Symbol.toStringTag]: string;
}

/** Memory of a module; growing replaces its buffer. */
export interface WasmLinearMemory {
  readonly buffer: ArrayBufferLike;
  grow(pages: number): number;
}

/** The object itself. */
interface WasmRuntime {
  validate(bytes: Uint8Array): boolean;
  compile(bytes: Uint8Array): Promise<WasmModule>;
  readonly Module: new (bytes: Uint8Array) => WasmModule;
  readonly Instance: new (module: WasmModule, imports: object) => { readonly exports: object };
  readonly Memory: new (limits: {
    readonly initial: number;
    readonly maximum: number;
    readonly shared: boolean;
  }) => WasmLinearMemory;
}

/** `undefined` in a runtime without WebAssembly. */
const webAssembly: WasmRuntime | undefined = (
  globalThis as unknown as { readonly WebAssembly?: WasmRuntime }
).WebAssembly;
