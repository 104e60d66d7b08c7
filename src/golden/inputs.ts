/**
 * The input rule of recorded calls: every element is a hash of the call's name, the rank and the element's number.
 *
 * Computed in WebAssembly, because recorded files are replayed whole: they have billions of elements.
 */
import { bytesOfView } from "../api/bits.ts";
import { bytesOf, type DType, dtypeInfo, type HostArray } from "../api/index.ts";
import { type GoldenCase, sentBlocks } from "./case.ts";
import { idOf } from "./format.ts";
import { wasmBase64 } from "./inputs-binary.js";

/** Drawn exponents: their number, and the least of them. */
type Exponents = readonly [count: keyof typeof divisions, least: number];

/** The bits of a float: sign and fraction are bits of the hash, the exponent is a remainder of its upper bits. */
interface FloatRule {
  readonly kept: number;
  /** The upper bits are those above this place. */
  readonly dropped: number;
  /** Place of the exponent. */
  readonly place: number;
  /** Moderate exponents, and those close to 0. */
  readonly norm: Exponents;
  readonly narrow: Exponents;
}

const floatRules: Partial<Record<DType, FloatRule>> = {
  float16: { kept: 0x83ff, dropped: 20, place: 10, norm: [8, 11], narrow: [3, 14] },
  bfloat16: { kept: 0x807f, dropped: 20, place: 7, norm: [16, 119], narrow: [3, 126] },
  float32: { kept: 0x807f_ffff, dropped: 23, place: 23, norm: [17, 119], narrow: [3, 126] },
  // The upper word.
  float64: { kept: 0x800f_ffff, dropped: 20, place: 20, norm: [17, 1015], narrow: [3, 1022] },
  float8e4m3: { kept: 0x87, dropped: 20, place: 3, norm: [8, 3], narrow: [3, 6] },
  float8e5m2: { kept: 0x83, dropped: 20, place: 2, norm: [8, 11], narrow: [3, 14] },
};

/** `x / count` as `x * factor >>> shift`, exact for the upper bits of a hash. */
const divisions = { 3: [21_846, 16], 8: [1, 3], 16: [1, 4], 17: [241, 12] } as const;

let passing = new ArrayBuffer(0);

/** The input of a rank in a call, valid until the next one: new memory takes as long as the numbers in it. */
export function passingInputOf(golden: GoldenCase, rank: number): HostArray {
  const bytes = inputBytes(golden);
  if (passing.byteLength < bytes) passing = new ArrayBuffer(bytes);
  return inputOf(golden, rank, passing);
}

function inputBytes(golden: GoldenCase): number {
  return sentBlocks(golden) * golden.count * bytesOf(golden.dtype);
}

/** The input of a rank in a call. */
export function inputOf(
  golden: GoldenCase,
  rank: number,
  memory = new ArrayBuffer(inputBytes(golden)),
): HostArray {
  const { dtype, op, count, values } = golden;
  const input = dtypeInfo[dtype].view(memory, 0, sentBlocks(golden) * count);
  const rule = values === "wild" ? undefined : floatRules[dtype];
  // Products leave the range of most types after a few moderate factors.
  const form = rule && formOf(rule, op === "prod" ? rule.narrow : rule.norm);
  const seed = fnv(idOf(golden)) + Math.imul(rank + 1, 0x9e3779b9);
  fill(bytesOfView(input), bytesOf(dtype), seed, form ?? anyBits);
  return input;
}

/** FNV-1a over the characters of a text. */
function fnv(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}

/** Numbers by which the module makes elements of hashes. */
type Form = readonly [
  kept: number,
  dropped: number,
  exponents: number,
  factor: number,
  shift: number,
  least: number,
  place: number,
];

const anyBits: Form = [0, 0, 0, 0, 0, 0, 0];

function formOf({ kept, dropped, place }: FloatRule, [exponents, least]: Exponents): Form {
  return [kept, dropped, exponents, ...divisions[exponents], least, place];
}

/** Elements that the module makes at once. */
const chunk = 4096;

/** Writes elements to `output`; the first is the hash of `seed`. */
function fill(output: Uint8Array, elementBytes: number, seed: number, form: Form): void {
  const module = inputsModule();
  const memory = new Uint8Array(module.memory.buffer);
  const count = output.length / elementBytes;
  for (let from = 0; from < count; from += chunk) {
    const length = Math.min(chunk, count - from);
    const at = seed + Math.imul(from, 0x85ebca6b);
    const address = module.fill(length, elementBytes, at, ...form);
    const made = memory.subarray(address, address + length * elementBytes);
    output.set(made, from * elementBytes);
  }
}

/** The exports of assembly/inputs.ts. */
interface InputsModule {
  readonly memory: { readonly buffer: ArrayBuffer };
  fill(count: number, elementBytes: number, at: number, ...form: Form): number;
}

interface WasmRuntime {
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object) => { readonly exports: object };
}

/** The module, compiled for its first use. */
function inputsModule(): InputsModule {
  if (loaded === undefined) {
    const { WebAssembly } = globalThis as unknown as { readonly WebAssembly: WasmRuntime };
    const module = new WebAssembly.Module(Buffer.from(wasmBase64, "base64"));
    loaded = new WebAssembly.Instance(module).exports as InputsModule;
  }
  return loaded;
}

let loaded: InputsModule | undefined;
