/**
 * The safetensors format: eight bytes of header length, a JSON header, and the tensors' bytes without holes.
 *
 * Written to its public specification, so that other programs read these files: little-endian, row-major, the header padded
 * with spaces to a multiple of 8. Wide elements are first, so that each tensor starts at a multiple of its width.
 *
 * @see {@link https://huggingface.co/docs/safetensors/index#format}
 */

import { bytesOf, type DType, dtypeInfo, InvalidArgumentError, isDType } from "../../api/index.ts";
import { assertOptions, invalid, type Rule, textOf } from "../../api/option-kinds.ts";
import { bytesOfArray, typedArrayClass } from "../../api/typed-array.ts";
import { isCount } from "../argument-checks.ts";
import { elementsOf, isRecord, type StateTensor } from "../state.ts";

/** The contents of a safetensors file. */
export interface TensorFile {
  readonly tensors: Readonly<Record<string, StateTensor>>;
  /** Texts by name; the format has no other values. */
  readonly metadata: Readonly<Record<string, string>>;
}

const names: { readonly [D in DType]: string } = {
  int8: "I8",
  uint8: "U8",
  int32: "I32",
  uint32: "U32",
  int64: "I64",
  uint64: "U64",
  float16: "F16",
  bfloat16: "BF16",
  float32: "F32",
  float64: "F64",
  float8e4m3: "F8_E4M3",
  float8e5m2: "F8_E5M2",
};

/** The same limit that the format's own library sets. */
const MOST_HEADER_BYTES = 100_000_000;

/**
 * The bytes of a safetensors file.
 *
 * @throws InvalidArgumentError for a tensor with the name `__metadata__`, data that do not fit a dtype or shape, or metadata
 * that are not texts.
 * @example
 * const bytes = encodeTensors({ tensors: model.state().tensors, metadata: { format: "pt" } });
 */
export function encodeTensors(file: TensorFile): Uint8Array<ArrayBuffer> {
  const table: Rule = { needed: "an object with named fields", holds: isRecord };
  assertOptions("encodeTensors", file, { tensors: table, metadata: table });
  const { tensors = {}, metadata } = file;
  const texts = Object.entries(metadata ?? {});
  for (const [name, text] of texts) {
    if (typeof text === "string") continue;
    throw invalid("encodeTensors", name, `${textOf(text)} as metadata`, "a text");
  }
  for (const [name, tensor] of Object.entries(tensors)) assertTensor(name, tensor);
  const sorted = Object.entries(tensors).sort(
    ([a, { dtype: da }], [b, { dtype: db }]) => bytesOf(db) - bytesOf(da) || (a < b ? -1 : 1),
  );
  let end = 0;
  const entries = sorted.map(([name, { dtype, shape, data }]) => {
    const begin = end;
    end += bytesOfArray(data).byteLength;
    return [name, { dtype: names[dtype], shape, data_offsets: [begin, end] }];
  });
  const text = JSON.stringify({ __metadata__: metadata, ...Object.fromEntries(entries) });
  const header = new TextEncoder().encode(text);
  const headerBytes = Math.ceil(header.length / 8) * 8;
  const bytes = new Uint8Array(8 + headerBytes + end);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(headerBytes), true);
  bytes.fill(0x20, 8, 8 + headerBytes).set(header, 8);
  let at = 8 + headerBytes;
  for (const [, { data }] of sorted) {
    const { buffer, byteOffset, byteLength } = bytesOfArray(data);
    bytes.set(new Uint8Array(buffer, byteOffset, byteLength), at);
    at += byteLength;
  }
  return bytes;
}

/**
 * The contents of a safetensors file, in arrays of its own.
 *
 * @throws InvalidArgumentError with the fault of the file, before any of it is used.
 * @example
 * const { tensors } = decodeTensors(readFileSync("model.safetensors"));
 */
export function decodeTensors(file: Uint8Array): TensorFile {
  if (typedArrayClass(file) !== "Uint8Array")
    throw fault(`it is ${textOf(file)}, needs a Uint8Array`);
  // Slices of a Node Buffer are not copies, and have an offset in shared memory, so it is read as plain bytes.
  const { buffer, byteOffset, byteLength } = bytesOfArray(file);
  const { header, body } = split(new Uint8Array(buffer, byteOffset, byteLength));
  const { __metadata__: metadata = {}, ...entries } = header;
  assertTexts(metadata);
  const tensors: Record<string, StateTensor> = {};
  const ranges: [number, number][] = [];
  for (const [name, entry] of Object.entries(entries)) {
    const { dtype, shape, begin, end } = checkedEntry(name, entry, body.length);
    ranges.push([begin, end]);
    const bytes = body.slice(begin, end);
    const data = dtypeInfo[dtype].view(bytes.buffer, 0, elementsOf(shape));
    Object.defineProperty(tensors, name, { value: { dtype, shape, data }, enumerable: true });
  }
  let covered = 0;
  for (const [begin, end] of ranges.sort(([a, b], [c, d]) => a - c || b - d)) {
    if (begin !== covered) throw fault(`its tensors overlap or leave a hole at byte ${covered}`);
    covered = end;
  }
  if (covered !== body.length) {
    throw fault(`its tensors end at byte ${covered} of ${body.length}`);
  }
  return { tensors, metadata };
}

function assertTensor(name: string, tensor: StateTensor): void {
  const { dtype, shape, data } = tensor ?? {};
  if (!isDType(dtype)) throw invalid("encodeTensors", name, textOf(dtype), "a dtype");
  const { host } = dtypeInfo[dtype];
  if (!isCounts(shape) || typedArrayClass(data) !== host) {
    const shapeText = isCounts(shape) ? `[${shape}]` : textOf(shape);
    const found = `${textOf(data)} of ${shapeText}`;
    throw invalid("encodeTensors", name, found, `the ${host} of a shape`);
  }
  const needed = elementsOf(shape) * bytesOf(dtype);
  const { byteLength } = bytesOfArray(data);
  if (name === "__metadata__") {
    throw invalid("encodeTensors", name, "a name that the format reserves", "another one");
  }
  if (byteLength === needed) return;
  const those = `${needed}, those of ${dtype} [${shape.join(", ")}]`;
  throw invalid("encodeTensors", name, `${byteLength} bytes`, those);
}

function split(file: Uint8Array): { header: Record<string, unknown>; body: Uint8Array } {
  if (file.length < 8) throw fault(`it has ${file.length} bytes, fewer than a header`);
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const length = view.getBigUint64(0, true);
  if (length > BigInt(Math.min(MOST_HEADER_BYTES, file.length - 8))) {
    throw fault(`its header of ${length} bytes is longer than the file or than allowed`);
  }
  const end = 8 + Number(length);
  const header = parsed(file.subarray(8, end));
  if (typeof header !== "object" || header === null || Array.isArray(header)) {
    throw fault("its header is no JSON object");
  }
  return { header: header as Record<string, unknown>, body: file.subarray(end) };
}

function parsed(header: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(header));
  } catch (error) {
    throw fault(`its header is no JSON: ${error instanceof Error ? error.message : error}`);
  }
}

function assertTexts(metadata: unknown): asserts metadata is Record<string, string> {
  const isObject = typeof metadata === "object" && metadata !== null;
  if (!isObject || Object.values(metadata).some((value) => typeof value !== "string")) {
    throw fault("its metadata are not texts by name");
  }
}

function checkedEntry(
  name: string,
  entry: unknown,
  bodyBytes: number,
): { dtype: DType; shape: number[]; begin: number; end: number } {
  const { dtype: found, shape, data_offsets: offsets } = (entry ?? {}) as Record<string, unknown>;
  const dtype = (Object.keys(names) as DType[]).find((each) => names[each] === found);
  if (dtype === undefined) throw fault(`tensor "${name}" has the dtype ${textOf(found)}`);
  if (!isCounts(shape)) throw fault(`tensor "${name}" has no shape`);
  const [begin, end] = isCounts(offsets) && offsets.length === 2 ? offsets : [-1, -1];
  if (begin === undefined || end === undefined || begin < 0 || end < begin || end > bodyBytes) {
    throw fault(`tensor "${name}" lies outside of the file`);
  }
  if (end - begin !== elementsOf(shape) * bytesOf(dtype)) {
    throw fault(`tensor "${name}" has ${end - begin} bytes, not those of ${dtype} [${shape}]`);
  }
  return { dtype, shape, begin, end };
}

function isCounts(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((each) => isCount(each));
}

function fault(found: string): InvalidArgumentError {
  return new InvalidArgumentError({ headline: `decodeTensors: ${found}` }, { field: "file" });
}
