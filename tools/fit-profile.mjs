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

/** A value as TypeScript, in the format of the repository. */
function literal(value, indent = "") {
  if (Array.isArray(value)) {
    const inline = `[${value.map((each) => literal(each)).join(", ")}]`;
    if (inline.length < 90) return inline;
    return `[\n${value.map((each) => `${indent}  ${literal(each)},\n`).join("")}${indent}]`;
  }
  if (typeof value !== "object") return JSON.stringify(value);
  const fields = Object.entries(value).map(
    ([name, field]) => `${indent}  ${name}: ${literal(field, `${indent}  `)},\n`,
  );
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
  `/** The profile of eight H200, written by \`npm run profile:fit\`; docs/predict.md has the meaning of every number. */
import type { MachineProfile } from "../profile.ts";

export const h200x8Profile: MachineProfile = ${literal(profile)};
`,
);
const { geometric, mean, worst, count } = errorsOf(residuals);
process.stdout.write(
  `${count} measured calls: off by ${geometric.toFixed(1)} % (geometric mean), ${mean.toFixed(1)} % (mean), ${worst.toFixed(0)} % (worst)\n`,
);
