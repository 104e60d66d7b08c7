// Measures the WebGPU executor on this machine's adapter, beside the device's own copies and beside cpu():
// npm run bench:webgpu -- --help
// Everything comes from one run. Bandwidth counts the bytes that were moved: what is read and what is written. A fold is
// measured with several communicators in flight, as many as keep the device busy, and one call at a time; a latency is
// from the call to its result. On an adapter in software the figures say nothing about speed, and the table says so.
import { writeFileSync } from "node:fs";
import { createWorld } from "twinccl";
import { environment, environmentText, sizeText } from "twinccl/bench";
import { cpu, sim } from "twinccl/sim";
import { webgpu } from "twinccl/webgpu";
import { options, output, whole } from "../tools/options.mjs";
import { copyBandwidth } from "./webgpu/copy.mjs";
import { foldBandwidth, latency, onCpu } from "./webgpu/fold.mjs";
import { forms } from "./webgpu/forms.mjs";

const values = options({
  name: "bench:webgpu",
  about: "Measures the WebGPU executor beside the device's own copies and beside cpu().",
  options: {
    out: { is: output, help: "keeps all figures as JSON" },
    bytes: { is: whole(1024), default: String(64 * 2 ** 20), help: "of a rank" },
    ranks: { is: whole(1), default: "8", help: "number of ranks" },
    rounds: { is: whole(1), default: "5", help: "the best of which counts" },
    "no-cpu": { help: "without cpu(), which takes long" },
    forms: { help: "adds every way in which the device may add float16" },
  },
});
const { bytes, ranks: size, rounds } = values;
const print = (text) => process.stdout.write(`${text}\n`);

const executor = webgpu();
const world = await createWorld({ backend: sim({ executor }), size });
const { adapter, nativeAdd } = executor;
const trust = Object.entries(nativeAdd).map(([dtype, native]) => `${dtype} ${native}`);
const software = /swiftshader|llvmpipe|software/i.test(adapter);
print(`# ${environmentText(environment())}`);
print(`# ${adapter}, native addition trusted for: ${trust.join(", ")}`);
if (software) print("# an adapter in software: these figures say nothing about speed");

const results = [];
const keep = (row) => {
  results.push(row);
  return row;
};

const copy = keep({ name: "copy", ...(await copyBandwidth(executor.device, bytes, rounds)) });
print(`copy ${sizeText(bytes)}, buffer to buffer: ${copy.gigabytesPerSecond.toFixed(1)} GB/s`);

for (const dtype of ["float32", "bfloat16", "float16"]) {
  for (const collective of ["reduce", "allReduce"]) {
    for (const inFlight of [4, 1]) {
      const found = await foldBandwidth(world, { collective, dtype, bytes, rounds, inFlight });
      const ofCopy = found.gigabytesPerSecond / copy.gigabytesPerSecond;
      keep({ name: "fold", collective, dtype, inFlight, ...found, ofCopy });
      print(
        `${collective} ${dtype}, ${size} ranks, ${inFlight} in flight: ${found.milliseconds.toFixed(3)} ms, ` +
          `${found.gigabytesPerSecond.toFixed(1)} GB/s, ${(100 * ofCopy).toFixed(0)} % of a copy`,
      );
    }
  }
}

const small = keep({ name: "latency", ...(await latency(world, 1024, 300 * rounds)) });
print(`allReduce of 1 KiB: ${small.medianUs.toFixed(1)} µs from call to done (median)`);
if (values.forms) {
  results.push(...(await forms(executor.device, { size, bytes, rounds, copy, print })));
}
await world.close();

if (!values["no-cpu"]) {
  const reference = await createWorld({ backend: sim({ executor: cpu() }), size });
  const host = keep({ name: "cpu", ...(await onCpu(reference, bytes)) });
  await reference.close();
  const gpu = results.find(
    ({ name, collective, dtype, inFlight }) =>
      name === "fold" && collective === "allReduce" && dtype === "float32" && inFlight === 4,
  );
  host.slower = host.milliseconds / gpu.milliseconds;
  print(
    `allReduce float32 on cpu(): ${host.milliseconds.toFixed(0)} ms, ${host.slower.toFixed(0)} times as long`,
  );
}

if (values.out !== undefined) {
  const date = new Date().toISOString();
  const facts = { ...environment(), date, adapter, nativeAdd, software };
  const document = { ...facts, bytes, ranks: size, results };
  writeFileSync(values.out, `${JSON.stringify(document, null, 2)}\n`);
}
