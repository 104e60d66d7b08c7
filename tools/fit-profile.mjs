// Fits the profile of the library's machine to the measured times in bench/results, and writes it as data.
// npm run profile:fit -- --help
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { fitProfile, machineProfiles } from "twinccl/algorithms";
import { options } from "./options.mjs";
import { fittedMeasurements, profileOrigin } from "./times/measurements.mjs";
import { errorsOf } from "./times/report.mjs";

options({
  name: "profile:fit",
  about:
    "Fits the profile h200x8 to the times in bench/results and writes it; build again afterwards.",
  options: {},
});

const file = fileURLToPath(
  new URL("../src/algorithms/nccl/times/profiles/h200x8.ts", import.meta.url),
);

/** Fits one after another: the pull towards the first numbers is gone after the second. */
const fits = 3;

/** Characters of a line. */
const width = 100;

const nameOf = (name) => (/^[\w$]+$/.test(name) ? name : JSON.stringify(name));

/** A value on one line. */
function inlineOf(value) {
  if (Array.isArray(value)) return `[${value.map(inlineOf).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  const fields = Object.entries(value).map(([name, each]) => `${nameOf(name)}: ${inlineOf(each)}`);
  return `{ ${fields.join(", ")} }`;
}

/** A value as TypeScript, in the format of the repository; `used` are the characters before it on its line. */
function literal(value, indent = "", used = 0) {
  const inline = inlineOf(value);
  if (typeof value !== "object") return inline;
  // Objects of numbers stay one number a line, so that a fit changes only its lines.
  const isShort = Array.isArray(value) || Array.isArray(Object.values(value)[0]);
  if (isShort && used + inline.length < width) return inline;
  const inner = `${indent}  `;
  if (Array.isArray(value)) {
    return `[\n${value.map((each) => `${inner}${literal(each, inner)},\n`).join("")}${indent}]`;
  }
  const fields = Object.entries(value).map(([name, each]) => {
    const start = `${inner}${nameOf(name)}: `;
    return `${start}${literal(each, inner, start.length)},\n`;
  });
  return `{\n${fields.join("")}${indent}}`;
}

const measurements = fittedMeasurements();
let fitted = { profile: machineProfiles.h200x8, residuals: [] };
for (let fit = 0; fit < fits; fit++) {
  fitted = fitProfile(profileOrigin(), measurements, fitted.profile);
}
const { profile, residuals } = fitted;
writeFileSync(
  file,
  `/** The profile of eight H200, written by \`npm run profile:fit\`; docs/design/nccl-times.md has the meaning of every number. */
import type { MachineProfile } from "../profile.ts";

export const h200x8Profile: MachineProfile = ${literal(profile)};
`,
);
const { geometric, mean, worst, count } = errorsOf(residuals);
process.stdout.write(
  `${count} measured calls: off by ${geometric.toFixed(1)} % (geometric mean), ${mean.toFixed(1)} % (mean), ${worst.toFixed(0)} % (worst)\n`,
);
