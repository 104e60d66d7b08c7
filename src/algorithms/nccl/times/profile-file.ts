/** Profiles: those of the library, and those in files, which are checked field by field. */
import { dtypes } from "../../../api/dtype.ts";
import { InvalidArgumentError, UnsupportedError } from "../../../api/errors.ts";
import { namesText } from "../../../api/nearest.ts";
import { invalid, textOf } from "../../../api/option-kinds.ts";
import type { TopologyName } from "../machines.ts";
import { libraryOf, ncclVersions } from "../rules.ts";
import { modeText, modeValues } from "./model.ts";
import type { MachineProfile } from "./profile.ts";
import { h200x8Profile } from "./profiles/h200x8.ts";
import { misalignedText, timedCollectives } from "./question.ts";

/** The profiles that come with the library, by name. */
export const machineProfiles: Readonly<Record<string, MachineProfile>> = { h200x8: h200x8Profile };

/**
 * The profile in the text of a file.
 *
 * @throws InvalidArgumentError that names the file, the field and the found value. UnsupportedError for a version of NCCL or a
 * machine without known plans.
 */
export function parseProfile(text: string, file: string): MachineProfile {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new InvalidArgumentError(
      { headline: `${file}: no JSON: ${(error as Error).message}`, hint },
      { field: "profile", cause: error },
    );
  }
  return checkedProfile(value, file);
}

const hint = "twinccl has the profile of h200x8; another one is measured on its machine";

/** For a file without a number of the model, or with an unknown one. */
const numbersHint =
  "files of other versions of twinccl have other numbers: twinccl calibrate writes it again from its results";

/** Machines of one node: the model has no terms for calls between nodes. */
const timedTopologies: readonly TopologyName[] = ["h200x8"];

type Fields = Readonly<Record<string, unknown>>;

/** Checks the fields of a profile; `file` names it in errors. */
export function checkedProfile(value: unknown, file: string): MachineProfile {
  const profile = fieldsOf(value, file, "profile", Object.keys(h200x8Profile));
  for (const name of ["name", "machine", "topology", "nccl", "date", "commit"]) {
    if (typeof profile[name] !== "string") throw fault(file, name, textOf(profile[name]), "a text");
  }
  const { topology, nccl } = profile;
  if (libraryOf(`nccl-${nccl}`) === undefined) {
    throw unknownOf(file, "nccl", nccl, ncclVersions);
  }
  if (!timedTopologies.includes(topology as TopologyName)) {
    throw unknownOf(file, "topology", topology, timedTopologies);
  }
  if (!isDay(profile["date"] as string)) {
    throw fault(file, "date", textOf(profile["date"]), "a day such as 2026-11-22");
  }
  const { sources } = profile;
  if (!Array.isArray(sources) || sources.some((source) => typeof source !== "string")) {
    throw fault(file, "sources", textOf(sources), "a list of texts");
  }
  checkMode(profile["mode"], file);
  checkMeasured(profile["measured"], file);
  checkNumbers(profile["numbers"], h200x8Profile.numbers, file, "numbers");
  return value as MachineProfile;
}

/** True for a day of the calendar, such as 2026-11-22. */
export function isDay(text: string): boolean {
  if (!/^\d{4}-\d\d-\d\d$/.test(text)) return false;
  const [year, month, day] = text.split("-").map(Number) as [number, number, number];
  const isLeap = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
  const days = month === 2 ? (isLeap ? 29 : 28) : [4, 6, 9, 11].includes(month) ? 30 : 31;
  return month >= 1 && month <= 12 && day >= 1 && day <= days;
}

function checkMode(value: unknown, file: string): void {
  const mode = fieldsOf(value, file, "mode", Object.keys(modeValues));
  for (const [name, known] of Object.entries<readonly unknown[]>(modeValues)) {
    if (known.includes(mode[name])) continue;
    throw fault(file, `mode.${name}`, textOf(mode[name]), `one of ${known.join(", ")}`);
  }
}

function checkMeasured(value: unknown, file: string): void {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw fault(file, "measured", textOf(value), "ranges by collective");
  }
  for (const [collective, ranges] of Object.entries(value)) {
    const field = `measured.${collective}`;
    if (!timedCollectives.some((each) => each === collective)) {
      throw fault(file, field, "an unknown name", namesText(collective, timedCollectives));
    }
    const found = fieldsOf(ranges, file, field, ["modes", "choices", "dtypes"]);
    checkKinds(found["modes"], file, `${field}.modes`, knownModes, modesText);
    checkKinds(found["choices"], file, `${field}.choices`, knownChoices);
    checkDTypes(found["dtypes"], file, `${field}.dtypes`);
  }
}

/** The words of all ways of calling. */
const knownModes: readonly string[] = modeValues.launch.flatMap((launch) =>
  modeValues.memory.flatMap((memory) =>
    modeValues.processes.flatMap((processes) =>
      modeValues.awaited.flatMap((awaited) => {
        const way = modeText({ launch, memory, processes, awaited });
        return [way, way + misalignedText];
      }),
    ),
  ),
);

/** Their pattern, because the list is long. */
const modesText = `"recorded, ordinary | registered | symmetric memory" or "call by call, ordinary | symmetric memory", with ", one process", ", awaited", "${misalignedText}" as they apply`;

/** The names of all choices of the time model. */
const knownChoices: readonly string[] = [
  ...["Ring", "Tree"].flatMap((algorithm) =>
    ["LL", "LL128", "Simple"].map((protocol) => `${algorithm} ${protocol}`),
  ),
  ...["LL", "LD"].map((kernel) => `Symmetric ${kernel}`),
  "messages",
];

/** Ranges by words of a list, for which `words` stands in errors. */
function checkKinds(
  value: unknown,
  file: string,
  field: string,
  known: readonly string[],
  words?: string,
): void {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw fault(file, field, textOf(value), "ranges by name");
  }
  for (const [name, ranges] of Object.entries(value)) {
    const path = `${field}.${name}`;
    if (!known.includes(name)) {
      throw fault(file, path, "an unknown name", words ?? namesText(name, known));
    }
    const { ranks, bytes } = fieldsOf(ranges, file, path, ["ranks", "bytes"]);
    checkRange(ranks, file, `${path}.ranks`, 1);
    checkRange(bytes, file, `${path}.bytes`, 0);
  }
}

function checkDTypes(value: unknown, file: string, field: string): void {
  const isKnown = (each: unknown): boolean => dtypes.some((dtype) => dtype === each);
  if (Array.isArray(value) && value.length > 0 && value.every(isKnown)) return;
  throw fault(file, field, textOf(value), `a list of ${dtypes.join(", ")}`);
}

function checkRange(value: unknown, file: string, field: string, least: number): void {
  const [from, to] = Array.isArray(value) && value.length === 2 ? value : [undefined, undefined];
  if (!Number.isSafeInteger(from) || !Number.isSafeInteger(to) || from < least) {
    throw fault(file, field, textOf(value), `two whole numbers of at least ${least}`);
  }
  if (from > to) throw fault(file, field, `${from} to ${to}`, "the least first, then the most");
}

/** Numbers at these values have no effect; others are between them, and times are finite. */
const [leastNumber, mostNumber] = [1e-9, 1e9];

/** The same fields as `like` has, each a number between the bounds. */
function checkNumbers(value: unknown, like: object, file: string, field: string): void {
  const found = fieldsOf(value, file, field, Object.keys(like));
  for (const [name, model] of Object.entries(like)) {
    const [path, number] = [`${field}.${name}`, found[name]];
    if (typeof model === "object") checkNumbers(number, model, file, path);
    else if (typeof number !== "number" || !(number >= leastNumber && number <= mostNumber)) {
      const isPositive = typeof number === "number" && number > 0;
      const needs = isPositive ? "a number of 1e-9 to 1e9" : "a number above 0";
      throw fault(file, path, textOf(number), needs);
    }
  }
}

/** The fields of an object with exactly these names. */
function fieldsOf(value: unknown, file: string, field: string, names: readonly string[]): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw fault(file, field, textOf(value), `an object with ${names.join(", ")}`);
  }
  const path = field === "profile" ? "" : `${field}.`;
  const isOfNumbers = path.startsWith("numbers.");
  for (const name of Object.keys(value)) {
    if (names.includes(name)) continue;
    const headline = `${file}: ${path}${name}: it is not known here, needs ${namesText(name, names)}`;
    throw new InvalidArgumentError(
      { headline, hint: isOfNumbers ? numbersHint : undefined },
      { field: `${path}${name}` },
    );
  }
  for (const name of names) {
    if (Object.hasOwn(value, name)) continue;
    const what = isOfNumbers ? numbersHint : hint;
    throw invalid(file, `${path}${name}`, "nothing", "a value", what);
  }
  return value as Fields;
}

function fault(file: string, field: string, found: string, needs: string): InvalidArgumentError {
  return invalid(file, field, found, needs, hint);
}

function unknownOf(
  file: string,
  field: string,
  found: unknown,
  known: readonly string[],
): UnsupportedError {
  const headline = `${file}: ${field}: found ${textOf(found)}, times are modelled for ${known.join(", ")}`;
  return new UnsupportedError({ headline, hint }, { field });
}
