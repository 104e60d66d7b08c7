/** The safetensors format, against bytes written by hand from its specification. */
import { type DType, dtypeInfo, dtypes, InvalidArgumentError } from "twinccl";
import { decodeTensors, encodeTensors, type StateTensor } from "twinccl/parallel";
import { expect, test } from "vitest";

/** A file of a header, padded as it is, and a body. */
function file(header: string, body: readonly number[] = []): Uint8Array {
  const text = new TextEncoder().encode(header);
  const length = new Uint8Array(new BigUint64Array([BigInt(text.length)]).buffer);
  return Uint8Array.from([...length, ...text, ...body]);
}

test("a file matches its specification, byte by byte", () => {
  const bytes = encodeTensors({
    tensors: {
      b: { dtype: "uint8", shape: [3], data: Uint8Array.of(7, 8, 9) },
      a: { dtype: "float32", shape: [2, 1], data: Float32Array.of(1, -2) },
    },
    metadata: { k: "v" },
  });
  const header =
    '{"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},' +
    '"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}}';
  const padded = header.padEnd(Math.ceil(header.length / 8) * 8, " ");
  expect(bytes).toEqual(file(padded, [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 7, 8, 9]));
});

test("every dtype comes back bit by bit, at any place in the file", () => {
  const tensors = Object.fromEntries(
    dtypes.map((dtype: DType, at): [string, StateTensor] => {
      const { bytes, view } = dtypeInfo[dtype];
      const memory = Uint8Array.from({ length: bytes * (at % 4) }, (_, byte) => 251 - 37 * byte);
      return [dtype, { dtype, shape: [at % 4, 1], data: view(memory.buffer, 0, at % 4) }];
    }),
  );
  tensors["scalar"] = { dtype: "float64", shape: [], data: Float64Array.of(-0) };
  const bytes = encodeTensors({ tensors, metadata: {} });
  // Read from the middle of another buffer, where nothing is aligned.
  const shifted = new Uint8Array(bytes.length + 3);
  shifted.set(bytes, 3);
  const found = decodeTensors(shifted.subarray(3));
  expect(found.tensors).toEqual(Object.fromEntries(Object.entries(tensors).sort()));
  expect(Object.is(found.tensors["scalar"]?.data[0], -0)).toBe(true);
  const names = { float8e4m3: "F8_E4M3", float8e5m2: "F8_E5M2", bfloat16: "BF16", uint64: "U64" };
  const text = new TextDecoder().decode(bytes);
  for (const [dtype, name] of Object.entries(names)) {
    expect(text).toContain(`"${dtype}":{"dtype":"${name}"`);
  }
});

test("files of other programs are read: other orders, no padding, no metadata", () => {
  const header =
    '{"z":{"data_offsets":[2,6],"shape":[],"dtype":"I32"},"y":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}';
  const { tensors, metadata } = decodeTensors(file(header, [5, 6, 255, 255, 255, 255]));
  expect(tensors["z"]).toEqual({ dtype: "int32", shape: [], data: Int32Array.of(-1) });
  expect(tensors["y"]?.data).toEqual(Uint8Array.of(5, 6));
  expect(metadata).toEqual({});
});

test("a Buffer of Node's pool is read by its own bytes", () => {
  const data = Float32Array.of(1, 2, 3);
  const bytes = encodeTensors({
    tensors: { t: { dtype: "float32", shape: [3], data } },
    metadata: {},
  });
  const pooled = Buffer.from(bytes);
  expect(pooled.buffer.byteLength).toBeGreaterThan(bytes.length);
  const { tensors } = decodeTensors(pooled);
  expect(tensors["t"]?.data).toEqual(data);
  // In arrays of its own, also there.
  pooled.fill(0);
  expect(tensors["t"]?.data).toEqual(data);
});

const one = (entry: string): string => `{"t":${entry}}`;
test.each<[string, Uint8Array, RegExp]>([
  ["no header", Uint8Array.of(1, 2), /2 bytes, fewer than a header/],
  ["a header longer than the file", file("{}").subarray(0, 9), /header of 2 bytes is longer/],
  ["a header that is no JSON", file("{"), /JSON/],
  ["a header that is no object", file("[]"), /no JSON object/],
  ["metadata that are no texts", file('{"__metadata__":{"a":1}}'), /metadata/],
  ["an unknown dtype", file(one('{"dtype":"F7","shape":[],"data_offsets":[0,0]}')), /dtype "F7"/],
  ["no shape", file(one('{"dtype":"U8","data_offsets":[0,0]}')), /no shape/],
  ["a range outside", file(one('{"dtype":"U8","shape":[2],"data_offsets":[0,2]}'), [1]), /outside/],
  [
    "a range backwards",
    file(one('{"dtype":"U8","shape":[0],"data_offsets":[1,0]}'), [1]),
    /outside/,
  ],
  [
    "too few bytes",
    file(one('{"dtype":"F32","shape":[2],"data_offsets":[0,4]}'), [1, 2, 3, 4]),
    /4 bytes, not/,
  ],
  [
    "a hole",
    file(one('{"dtype":"U8","shape":[1],"data_offsets":[1,2]}'), [1, 2]),
    /hole at byte 0/,
  ],
  [
    "bytes left over",
    file(one('{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'), [1, 2]),
    /byte 1 of 2/,
  ],
  [
    "an overlap",
    file(
      '{"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"u":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}',
      [1, 2],
    ),
    /overlap/,
  ],
])("%s is refused", (_, bytes, message) => {
  expect(() => decodeTensors(bytes)).toThrow(message);
  expect(() => decodeTensors(bytes)).toThrow(InvalidArgumentError);
});

test("a value that is not a tensor is not written", () => {
  const data = Uint8Array.of(1);
  const encode = (name: string, shape: number[]): Uint8Array =>
    encodeTensors({ tensors: { [name]: { dtype: "uint8", shape, data } }, metadata: {} });
  expect(() => encode("__metadata__", [1])).toThrow(/the format reserves/);
  expect(() => encode("t", [2])).toThrow(/t: found 1 bytes, needs 2/);
});

test("a tensor that other programs could not read is not written", () => {
  const encode = (file: unknown) => () =>
    encodeTensors(file as Parameters<typeof encodeTensors>[0]);
  const tensor = { dtype: "float32", shape: [2], data: new Float32Array(2) };
  const of = (more: object) => encode({ tensors: { w: { ...tensor, ...more } }, metadata: {} });
  for (const [work, message] of [
    [encode({ tensors: {}, metadata: { step: 3 } }), /step: found 3 as metadata, needs a text/],
    [encode({ w: tensor }), /encodeTensors: w: it is not known here, needs one of tensors/],
    [encode(undefined), /options: found undefined/],
    // Their entries would be left out.
    [encode({ tensors: new Map([["w", tensor]]) }), /tensors: found an object, needs an obj/],
    [encode({ tensors: {}, metadata: new Map([["a", "b"]]) }), /metadata: found an object, needs/],
    [of({ dtype: "float" }), /w: found "float", needs a dtype/],
    [of({ data: new Int32Array(2) }), /found an Int32Array of \[2\], needs the Float32Array/],
    [of({ shape: [4], data: new Float64Array(2) }), /found a Float64Array of \[4\], needs/],
    [of({ shape: 2 }), /a Float32Array of 2, needs the Float32Array of a shape/],
    [encode({ tensors: { w: undefined }, metadata: {} }), /w: found undefined/],
    [() => decodeTensors("model.safetensors" as never), /it is "model.safetensors", needs a Uint8/],
  ] as const) {
    expect(work).toThrow(message);
    expect(work).toThrow(InvalidArgumentError);
  }
});
