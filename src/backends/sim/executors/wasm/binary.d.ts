/** The module that `tools/wasm.mjs` compiles from assembly/ and writes to binary.js beside this file, before any build or test. */

/** The module, as base64. It imports one memory, shared or not, by a flag. */
export declare const wasmBase64: string;
/** Place of the byte that holds the flags of the imported memory: 3 when it is shared, 1 when it is not. */
export declare const memoryFlagsAt: number;
/** The script of a worker thread. */
export declare const workerSource: string;
