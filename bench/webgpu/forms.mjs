// The ways in which a device may add float16, side by side: how fast each folds, and whether it has the bits of cpu().
import { createWorld } from "twinccl";
import { cpu, sim } from "twinccl/sim";
import { WebgpuExecutor } from "twinccl/webgpu";
import { foldBandwidth } from "./fold.mjs";

const settings = { slabBytes: undefined, limits: {}, keepDevice: false };

/** Rows of figures, one for each form and number of calls in flight; `print` gets each. */
export async function forms(device, { size, bytes, rounds, copy, print }) {
  const rows = [];
  const expected = await bitsOf(sim({ executor: cpu() }), size);
  const all = ["halves", "converted", "all", "normal", "none"];
  for (const form of all) {
    if (form === "halves" && !device.features.has("shader-f16")) {
      print(`float16 by ${form}: the device has no shader-f16`);
      continue;
    }
    const executor = new WebgpuExecutor({ device, ...settings, native: { float16: form } });
    const backend = sim({ executor });
    const right = (await bitsOf(backend, size)) === expected;
    const world = await createWorld({ backend, size });
    for (const inFlight of [4, 1]) {
      const call = { collective: "reduce", dtype: "float16", bytes, rounds, inFlight };
      const found = await foldBandwidth(world, call);
      const ofCopy = found.gigabytesPerSecond / copy.gigabytesPerSecond;
      rows.push({ name: "form", form, right, inFlight, ...found, ofCopy });
      print(
        `float16 by ${form.padEnd(9)}, ${inFlight} in flight: ${found.milliseconds.toFixed(3)} ms, ` +
          `${found.gigabytesPerSecond.toFixed(1)} GB/s, ${(100 * ofCopy).toFixed(0)} % of a copy, bits ${right ? "as cpu()" : "DIFFER"}`,
      );
    }
    await world.close();
  }
  return rows;
}

/** The bits of a sum of any halves. */
async function bitsOf(backend, size) {
  const world = await createWorld({ backend, size });
  const found = await world.run(async (comm) => {
    const bits = Uint16Array.from({ length: 1 << 20 }, (_, i) => {
      const mixed = Math.imul(i + (comm.rank << 20), 0x9e3779b1);
      return Math.imul(mixed ^ (mixed >>> 15), 0x85ebca6b) >>> 16;
    });
    const send = comm.alloc("float16", bits.length).copyFrom(bits);
    await comm.allReduce({ send, op: "sum" });
    const sums = await send.toHost();
    return comm.rank === 0 ? Buffer.from(sums.buffer).toString("base64") : "";
  });
  await world.close();
  return found[0];
}
