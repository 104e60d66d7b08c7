/** Profiles in files: every fault is an error with the file, the field and the found value. */
import { CommError } from "twinccl";
import { describe, expect, test } from "vitest";
import {
  type MachineProfile,
  machineProfiles,
  parseProfile,
} from "../../../../../src/algorithms/index.ts";

const profile = machineProfiles["h200x8"] as MachineProfile;

/** The text of a profile with another value at a path. */
function changed(path: string, value: unknown): string {
  const copy = structuredClone(profile) as unknown as Record<string, unknown>;
  const names = path.split(".");
  const last = names.pop() as string;
  const at = names.reduce((found, name) => found[name] as Record<string, unknown>, copy);
  if (value === undefined) delete at[last];
  else at[last] = value;
  return JSON.stringify(copy);
}

function errorOf(text: string): CommError {
  try {
    parseProfile(text, "mine.json");
  } catch (error) {
    if (error instanceof CommError) return error;
    throw error;
  }
  throw new Error("accepted");
}

describe("a profile in a file", () => {
  test("is equal to the written one", () => {
    expect(parseProfile(JSON.stringify(profile), "mine.json")).toEqual(profile);
  });

  const faults: [string, unknown, string, string][] = [
    ["numbers.ring.LL.hopUs", undefined, "ERR_COMM_ARG", "found nothing"],
    ["numbers.ring.LL.hopUs", -1, "ERR_COMM_ARG", "found -1"],
    ["numbers.tree.pairGain", 0, "ERR_COMM_ARG", "found 0"],
    ["numbers.exchange.portRate", Number.NaN, "ERR_COMM_ARG", "found null"],
    ["numbers.exchange.portRate", "300", "ERR_COMM_ARG", 'found "300"'],
    ["numbers.ring.LL256", {}, "ERR_COMM_ARG", "not known here"],
    ["measured.allReduce.choices.Ring LL.ranks", [8, 2], "ERR_COMM_ARG", "found 8 to 2"],
    ["measured.allReduce.choices.Ring LL.bytes", [-1, 2], "ERR_COMM_ARG", "found an array"],
    ["measured.allReduce.choices.Ring 128", {}, "ERR_COMM_ARG", "found an unknown name"],
    [
      "measured.allReduce.modes.recorded",
      {},
      "ERR_COMM_ARG",
      'found an unknown name, needs "recorded, ordinary | registered | symmetric memory" or',
    ],
    ["measured.allReduce.modes", undefined, "ERR_COMM_ARG", "found nothing"],
    ["measured.allReduce.dtypes", ["float31"], "ERR_COMM_ARG", "found an array"],
    ["mode.memory", "fast", "ERR_COMM_ARG", 'found "fast"'],
    ["measured", [], "ERR_COMM_ARG", "found an array, needs ranges by collective"],
    ["measured.foo", profile.measured["allReduce"], "ERR_COMM_ARG", "found an unknown name"],
    ["measured.allReduce.dtypes", [], "ERR_COMM_ARG", "found an array, needs a list of"],
    ["numbers.ring.LL.hopUs", 1e308, "ERR_COMM_ARG", "found 1e+308, needs a number of 1e-9 to 1e9"],
    ["numbers.elementRate", 1e-300, "ERR_COMM_ARG", "found 1e-300, needs a number of 1e-9 to 1e9"],
    ["date", "2026-99-99", "ERR_COMM_ARG", 'found "2026-99-99", needs a day such as'],
    ["date", "2026-02-30", "ERR_COMM_ARG", 'found "2026-02-30", needs a day such as'],
    ["date", "yesterday", "ERR_COMM_ARG", 'found "yesterday"'],
    ["sources", "mine", "ERR_COMM_ARG", 'found "mine"'],
    ["nccl", "2.99.1", "ERR_COMM_UNSUPPORTED", 'found "2.99.1"'],
    ["topology", "b300x8", "ERR_COMM_UNSUPPORTED", 'found "b300x8"'],
  ];
  test.each(faults)("%s of %j is refused", (path, value, code, found) => {
    const error = errorOf(changed(path, value));
    expect(error.code).toBe(code);
    expect(error.field).toBe(path);
    expect(error.message).toContain("mine.json: ");
    expect(error.message).toContain(found);
  });

  test.each([
    ["numbers.ring.Simple.singleRate", undefined, "found nothing, needs a value"],
    ["numbers.exchange.ownGain", 3.349, "it is not known here"],
  ])(
    "%s of %j, as in files of earlier versions, is refused with what to do",
    (path, value, found) => {
      const error = errorOf(changed(path, value));
      expect(error.field).toBe(path);
      expect(error.message).toContain(`mine.json: ${path}: ${found}`);
      expect(error.message).toContain("twinccl calibrate writes it again from its results");
    },
  );

  test("other text and other JSON are refused", () => {
    expect(errorOf("{").message).toContain("mine.json: no JSON");
    expect(errorOf("[]").message).toContain("found an array, needs an object with name");
  });
});
