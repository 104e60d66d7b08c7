/** The module that `tools/wasm.mjs` compiles from assembly/inputs.ts, before any build or test. */

/** The module, as base64. */
export declare const wasmBase64: string;
