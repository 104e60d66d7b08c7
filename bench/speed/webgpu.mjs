// A result of `npm run bench:webgpu -- --out FILE` as a section of docs/benchmarks.md, with that of `npm run verify:webgpu` beside it.
import { sizeText, table } from "./gpu.mjs";

const whole = (number) => Math.round(number).toLocaleString("en-US");
const names = { reduce: "reduce", allReduce: "all-reduce" };
const forms = {
  halves: "by the device's own float16",
  converted: "in float32, by the device's conversions",
  all: "in float32, rounded by bits",
  normal: "in float32, rounded by bits, apart from subnormals and the like",
  none: "in whole numbers",
};

/** Dawn calls NVIDIA's adapters by their drivers first. */
function machineText(adapter) {
  const nvidia = /^NVIDIA: (\S+) .*, nvidia-(\S+)$/.exec(adapter);
  return nvidia === null ? adapter : `NVIDIA ${nvidia[2].toUpperCase()}, driver ${nvidia[1]},`;
}

const cell = ({ milliseconds, gigabytesPerSecond, ofCopy }) =>
  `${milliseconds.toFixed(2)} ms, ${whole(gigabytesPerSecond)} GB/s, ${(100 * ofCopy).toFixed(0)} %`;

/** Rows of what is alike but for the number of calls in flight. */
function pairs(results, name, keyOf) {
  const rows = new Map();
  for (const row of results.filter((each) => each.name === name)) {
    const known = rows.get(keyOf(row)) ?? {};
    rows.set(keyOf(row), { ...known, [row.inFlight === 1 ? "one" : "several"]: row });
  }
  return [...rows].map(([key, { one, several }]) => [key, cell(one), cell(several)]);
}

function formsText(results) {
  const rows = pairs(results, "form", ({ form, right }) =>
    right ? forms[form] : `${forms[form]}: not exact here, so not used`,
  );
  if (rows.length === 0) return "";
  const head = ["ways of adding float16, reduce", "one call at a time", "several in flight"];
  return `\n${table(head, rows)}`;
}

/** The section of a result; `verified` is the comparison with cpu() on the same machine, where there is one. */
export function webgpuSection(document, path, verified, verifiedPath) {
  const { adapter, versions, commit, date, bytes, ranks, results } = document;
  const find = (name) => results.find((row) => row.name === name);
  const copy = find("copy");
  const small = find("latency");
  const host = find("cpu");
  const facts = [
    `${machineText(adapter)} through Dawn`,
    `Node.js ${versions.node}`,
    `commit ${commit?.slice(0, 7) ?? "unknown"}`,
    ...(date === undefined ? [] : [date.slice(0, 10)]),
  ];
  const several = Math.max(...results.map(({ inFlight = 1 }) => inFlight));
  const folds = pairs(results, "fold", ({ collective, dtype }) => `${names[collective]}, ${dtype}`);
  const head = [
    `${ranks} ranks × ${sizeText(bytes)}`,
    "one call at a time",
    `${several} communicators in flight`,
  ];
  const sentences = [
    `An all-reduce of ${sizeText(small.bytes)} takes ${small.medianUs.toFixed(0)} µs from the call to its result (median of ${whole(small.samples)}).`,
    ...(host === undefined
      ? []
      : [
          `The all-reduce of float32 takes ${whole(host.slower)} times as long on \`cpu()\` of that machine.`,
        ]),
    ...(verified === undefined
      ? []
      : [
          `${whole(verified.elements)} elements of ${whole(verified.calls)} random calls were compared with \`cpu()\` there: ${verified.fine ? "none differs" : "some differ"}.`,
        ]),
  ];
  const comparison = verified === undefined ? "" : ` and \`${verifiedPath}\``;
  return `## Speed through WebGPU

${facts.join(", ")}. Bytes moved are bytes
read and written. Percentages are relative to the device's own buffer-to-buffer copy of ${sizeText(bytes)} in the same run, ${whole(copy.gigabytesPerSecond)} GB/s.

${table(head, folds)}${formsText(results)}
${sentences.join("\n")}
Figures: \`${path}\`${comparison}; \`npm run bench:webgpu -- --out FILE\` measures them again.
[webgpu.md](webgpu.md) explains the executor.
`;
}
