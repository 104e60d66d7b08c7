// Records on 2 GPUs which bits NCCL gives a NaN, and which zero a minimum or maximum takes:
// npm run verify:nan -- --help
// For every float type and operator, over Simple and LL, pairs of special values are reduced both ways round: NaNs
// with payloads of their own beside a number and beside each other, and both zeros. With two ranks each element is one
// hop; element blocks far apart are folded r1 then r0, and r0 then r1. The simulation's answer stands beside NCCL's.
import { writeFileSync } from "node:fs";
import { build, isStale } from "./build.mjs";
import { options, output } from "./options.mjs";

const values = options({
  name: "verify:nan",
  about:
    "Records on 2 GPUs which bits NCCL gives a NaN, and which zero a minimum or maximum takes.",
  options: {
    out: { is: output, help: "keeps the rows as JSON" },
    rehearse: { help: "simulates the GPUs too, to try the command itself" },
  },
});
if (isStale() && !build()) process.exit(2);
const { createWorld } = await import("../dist/api/index.js");
const { nccl } = await import("../dist/backends/nccl/index.js");
const { sim } = await import("../dist/backends/sim/index.js");

/** Bits of: one, infinity, quiet NaNs with two payloads (one negative), signalling ones where there are any. */
const formats = {
  float16: { bits: 16, one: 0x3c00, inf: 0x7c00, a: 0x7e01, b: 0xfe57, sa: 0x7c01, sb: 0xfd23 },
  bfloat16: { bits: 16, one: 0x3f80, inf: 0x7f80, a: 0x7fc1, b: 0xffd7, sa: 0x7f81, sb: 0xff93 },
  float32: {
    ...{ bits: 32, one: 0x3f800000, inf: 0x7f800000, a: 0x7fc00001, b: 0xffd12345 },
    ...{ sa: 0x7f800001, sb: 0xff912345 },
  },
  float64: {
    ...{ bits: 64, one: 0x3ff0000000000000n, inf: 0x7ff0000000000000n, a: 0x7ff8000000000001n },
    ...{ b: 0xfffa123456789abcn, sa: 0x7ff0000000000001n, sb: 0xfff2123456789abcn },
  },
  float8e4m3: { bits: 8, one: 0x38, inf: 0x7e, a: 0x7f, b: 0xff, sa: 0x7f, sb: 0xff },
  float8e5m2: { bits: 8, one: 0x3c, inf: 0x7c, a: 0x7e, b: 0xff, sa: 0x7d, sb: 0xfd },
};
const arrays = { 8: Uint8Array, 16: Uint16Array, 32: Uint32Array, 64: BigUint64Array };

/** Pairs by name: rank 0's value and rank 1's. */
function pairsOf({ bits, one, inf, a, b, sa, sb }) {
  const zero = bits === 64 ? 0n : 0;
  const sign = bits === 64 ? 1n << 63n : 2 ** (bits - 1);
  return {
    ...{ "NaN a, 1": [a, one], "1, NaN a": [one, a], "NaN b, 1": [b, one], "1, NaN b": [one, b] },
    ...{ "NaN a, NaN b": [a, b], "NaN b, NaN a": [b, a], "NaN b, NaN b": [b, b] },
    ...{ "sNaN a, 1": [sa, one], "1, sNaN b": [one, sb], "sNaN a, NaN b": [sa, b] },
    ...{ "NaN a, sNaN b": [a, sb], "inf, -inf": [inf, inf + sign], "0, inf": [zero, inf] },
    ...{ "+0, -0": [zero, sign], "-0, +0": [sign, zero], "-0, -0": [sign, sign] },
  };
}

const protocols = ["Simple", "LL", "LL128"];
const ops = ["sum", "prod", "min", "max", "avg", "preMul"];
/** Long enough that one channel's part has two chunks: chunk 0 is folded r1, r0, and chunk 1 r0, r1. */
const repeats = 64;

const hex = (value, bits) => `0x${value.toString(16).padStart(bits / 4, "0")}`;

async function resultsOf(world, dtype, op, inputs) {
  const outputs = await world.run(async (comm) => {
    const buffer = comm.alloc(dtype, inputs[comm.rank].length);
    buffer.copyFrom(viewOf(dtype, inputs[comm.rank]));
    await comm.allReduce({ send: buffer, op: op === "preMul" ? { preMul: 0.3 } : op });
    const output = await buffer.toHost();
    buffer.dispose();
    return output;
  });
  const Bits = arrays[formats[dtype].bits];
  return outputs.map(({ buffer, byteOffset, length }) => new Bits(buffer, byteOffset, length));
}

/** The bits as the array that buffers take. */
function viewOf(dtype, bits) {
  if (dtype === "float32") return new Float32Array(bits.buffer);
  return dtype === "float64" ? new Float64Array(bits.buffer) : bits;
}

async function record(backendOf) {
  const rows = [];
  for (const protocol of protocols) {
    const pin = { algorithm: "Ring", protocol, channels: 1 };
    const gpu = await createWorld({ backend: backendOf(pin), size: 2, name: "nan" });
    const twin = await createWorld({ backend: sim({ like: "nccl-2.28", plan: pin }), size: 2 });
    try {
      for (const [dtype, format] of Object.entries(formats)) {
        const pairs = Object.entries(pairsOf(format));
        const Bits = arrays[format.bits];
        const inputs = [0, 1].map((rank) => {
          const once = pairs.map(([, pair]) => pair[rank]);
          return Bits.from(Array.from({ length: repeats }, () => once).flat());
        });
        for (const op of ops) {
          const [ofGpu, other] = await resultsOf(gpu, dtype, op, inputs);
          const [ofSim] = await resultsOf(twin, dtype, op, inputs);
          rows.push(...rowsOf({ protocol, dtype, op, pairs, format, ofGpu, other, ofSim }));
        }
      }
    } finally {
      await gpu.close();
      await twin.close();
    }
  }
  return rows;
}

/** One row for each pair: the bits in the first chunk and in the last, and all others that came up. */
function rowsOf({ protocol, dtype, op, pairs, format, ofGpu, other, ofSim }) {
  return pairs.map(([pair, values], at) => {
    const all = (output) => [
      ...new Set(
        Array.from({ length: repeats }, (_, i) => hex(output[i * pairs.length + at], format.bits)),
      ),
    ];
    const last = (repeats - 1) * pairs.length + at;
    return {
      ...{ protocol, dtype, op, pair, inputs: values.map((value) => hex(value, format.bits)) },
      ranksAgree: all(ofGpu).join() === all(other).join(),
      foldedFrom1: hex(ofGpu[at], format.bits),
      foldedFrom0: hex(ofGpu[last], format.bits),
      all: all(ofGpu),
      sim: all(ofSim),
      same: all(ofGpu).join() === all(ofSim).join(),
    };
  });
}

const rows = await record((pin) =>
  values.rehearse ? sim({ like: "nccl-2.28", plan: pin }) : nccl({ plan: pin }),
);
const print = (text) => process.stdout.write(`${text}\n`);
print(
  `${"type".padEnd(11)}${"op".padEnd(7)}${"rank 0, rank 1".padEnd(16)}protocols        from r1, from r0: NCCL | simulation`,
);
const rowsByResult = new Map();
for (const row of rows) {
  const key = [
    row.dtype,
    row.op,
    row.pair,
    row.foldedFrom1,
    row.foldedFrom0,
    row.sim.join("/"),
  ].join();
  const known = rowsByResult.get(key);
  if (known === undefined) rowsByResult.set(key, { ...row, protocols: [row.protocol] });
  else known.protocols.push(row.protocol);
}
const order = (row) => `${row.dtype} ${ops.indexOf(row.op)} ${row.pair}`;
for (const row of [...rowsByResult.values()].sort((a, b) => (order(a) < order(b) ? -1 : 1))) {
  const gpu = `${row.foldedFrom1}, ${row.foldedFrom0}`;
  const mark = row.same ? "" : "  <- differs";
  print(
    `${row.dtype.padEnd(11)}${row.op.padEnd(7)}${row.pair.padEnd(16)}${row.protocols.join(",").padEnd(17)}${gpu} | ${row.sim.join("/")}${mark}`,
  );
}
const same = rows.filter((row) => row.same).length;
const disagreeing = rows.filter((row) => !row.ranksAgree).length;
print(
  `verify:nan: ${same} of ${rows.length} rows have the simulation's bits; ranks disagree in ${disagreeing}`,
);
if (values.out !== undefined) {
  const summary = { rows: rows.length, same, disagreeing };
  writeFileSync(values.out, `${JSON.stringify({ ...summary, results: rows }, null, 1)}\n`);
}
