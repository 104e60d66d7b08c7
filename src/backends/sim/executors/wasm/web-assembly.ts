/** The used part of the WebAssembly object: neither Node's types nor the language's describe it. */

/** A compiled module; threads may share it. */
export interface WasmModule {
  readonly [Symbol.toStringTag]: string;
}

/** Memory of a module; its buffer is another one after it grew. */
export interface WasmLinearMemory {
  readonly buffer: ArrayBufferLike;
  grow(pages: number): number;
}

/** The object itself. */
export interface WasmRuntime {
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
export const webAssembly: WasmRuntime | undefined = (
  globalThis as unknown as { readonly WebAssembly?: WasmRuntime }
).WebAssembly;
