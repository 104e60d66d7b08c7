/** The algorithms that `--algorithm` names: of the catalogue, or of a user's file, which is verified before a command uses it. */

import { existsSync } from "node:fs";
import { type Algorithm, algorithmsOf, builtCollectives, isTooLarge } from "../algorithms/index.ts";
import { assertAlgorithmFields, soundProgram } from "../algorithms/plans/catalogue-planner.ts";
import { countText } from "../api/error-text.ts";
import {
  type CollectiveName,
  InvalidArgumentError,
  type SpecifiedCollective,
  specifications,
} from "../api/index.ts";
import { type NamedAlgorithms, UsageError } from "./context.ts";
import { importFile } from "./program-file.ts";

/** The option's values, for help texts. */
export const algorithmHelp = "of the catalogue, or a FILE's (up to 8 ranks NCCL's plan)";

/** The meaning of FILE, for help texts. */
export const algorithmFileHelp = `A FILE such as ./line.mjs exports an algorithm of your own, by default or as its only one;
FILE#NAME is one of several. It is verified first: docs/algorithms.md says how to write one.
`;

/** The chosen algorithm. */
export interface ChosenAlgorithm {
  readonly algorithm: Algorithm;
  /** The backend's setting: a name, or an algorithm of the user's own. */
  readonly choice: string | Algorithm;
  /** The origin of a user's algorithm; `undefined` for those of the catalogue. */
  readonly own: UserAlgorithm | undefined;
}

/** The algorithms of a backend's collectives. */
interface AlgorithmSettings {
  /** Empty if no algorithm is named. */
  readonly algorithms: NamedAlgorithms;
  /** Note on a user's algorithm: the verified ranks, and the missing claim about NCCL's bits. */
  readonly note: string | undefined;
  /** Number of ranks for which a user's algorithm is verified. */
  readonly verifiedRanks: number | undefined;
}

/**
 * The algorithm that `--algorithm` names for a call. A user's algorithm is verified first.
 *
 * @throws UsageError for an unknown name or file. InvalidArgumentError for an algorithm that is not sound.
 */
export async function algorithmChoice(
  collective: CollectiveName,
  text: string | undefined,
  worlds: VerifiedWorlds,
): Promise<AlgorithmSettings> {
  if (text === undefined) return { algorithms: {}, note: undefined, verifiedRanks: undefined };
  const { choice, own } = await namedAlgorithm("--algorithm", collective, text);
  const algorithms = { [collective]: choice };
  if (own === undefined) return { algorithms, note: undefined, verifiedRanks: undefined };
  const verifiedRanks = verifyUserAlgorithm(own, worlds);
  return { algorithms, note: userAlgorithmText(own, verifiedRanks, worlds.ranks), verifiedRanks };
}

/** The algorithm of a name or a file; an algorithm of a file is complete, but not verified. */
export async function namedAlgorithm(
  option: string,
  collective: CollectiveName,
  text: string,
): Promise<ChosenAlgorithm> {
  const built = builtCollectives.find((each) => each === collective);
  if (built === undefined) throw new UsageError(`${option}: ${collective} has none to choose`);
  if (isFile(text)) return fromFile(option, built, text);
  const known = algorithmsOf(built);
  const algorithm = known.find(({ name }) => name === text);
  if (algorithm !== undefined) return { algorithm, choice: text, own: undefined };
  const names = known.map(({ name }) => name).join(", ");
  throw new UsageError(
    `${option}: found "${text}", needs one of ${names}, or a file with one of your own, such as ./line.mjs`,
  );
}

async function fromFile(
  option: string,
  collective: SpecifiedCollective,
  file: string,
): Promise<ChosenAlgorithm> {
  const algorithm = await loadAlgorithm(option, collective, file);
  const own = { collective, algorithm, file, option };
  assertWhole(own);
  return { algorithm, choice: algorithm, own };
}

/** Note on a user's algorithm beside its results. */
export function userAlgorithmText(
  { collective, algorithm, file }: UserAlgorithm,
  verifiedRanks: number,
  ranks: number,
): string {
  const where = `sound on ${countText(verifiedRanks, "rank")}`;
  const not = verifiedRanks === ranks ? "" : `, not judged on ${ranks}`;
  const claim = specifications[collective].reduces
    ? "no claim is made about NCCL's bits"
    : "copies bytes, as every plan does";
  return `${algorithm.name} of ${file}: ${where}${not}; ${claim}`;
}

/** The file of an option's text; `undefined` for a name of the catalogue, and without a text. */
export function algorithmFile(text: string | undefined): string | undefined {
  return text !== undefined && isFile(text) ? partsOf(text).path : undefined;
}

/** True if the text names a file: it has a slash or the extension of a script. */
function isFile(text: string): boolean {
  return /[/\\]|\.[cm]?[jt]s(#|$)/.test(text);
}

/**
 * The algorithm exported by a file: by the name after `#`, or else the default export, the collective's name or the only one.
 * It is not verified.
 *
 * @throws UsageError if the file is missing, cannot be loaded, or has several candidates.
 */
async function loadAlgorithm(
  option: string,
  collective: SpecifiedCollective,
  text: string,
): Promise<Algorithm> {
  const { path, name } = partsOf(text);
  const exported = await importFile(path, option);
  const found = algorithmsIn(exported);
  if (found.size === 0) throw new UsageError(`${option}: ${noAlgorithmsText(path, exported)}`);
  const different = new Set(found.values());
  const which = [...found.keys()].map((key) => `${path}#${key}`).join(" or ");
  if (name === undefined) {
    const only = different.size === 1 ? [...different][0] : undefined;
    const meant = found.get("default") ?? found.get(collective) ?? only;
    if (meant !== undefined) return meant;
    throw new UsageError(`${option}: ${path} has ${different.size} algorithms; name one: ${which}`);
  }
  const meant = found.get(name) ?? [...different].find((each) => each.name === name);
  if (meant !== undefined) return meant;
  throw new UsageError(`${option}: ${path} has no algorithm "${name}"; name one: ${which}`);
}

/** Algorithms by the names of the exports, including the entries of a default export that is a table (CommonJS). */
function algorithmsIn(exported: Readonly<Record<string, unknown>>): Map<string, Algorithm> {
  const { default: table } = exported;
  const inner = isObject(table) && !isAlgorithm(table) ? Object.entries(table) : [];
  const all = new Map([...inner, ...Object.entries(exported)]);
  return new Map([...all].filter((entry): entry is [string, Algorithm] => isAlgorithm(entry[1])));
}

/** A path and the name after `#`; the path of an existing file may contain `#`. */
function partsOf(text: string): { readonly path: string; readonly name: string | undefined } {
  const at = text.lastIndexOf("#");
  if (at < 0 || existsSync(text)) return { path: text, name: undefined };
  return { path: text.slice(0, at), name: text.slice(at + 1) };
}

/** True for an export that looks like an algorithm; a later check names missing parts. */
function isAlgorithm(found: unknown): boolean {
  const marks = ["write", "cost", "credits", "chunksPerBlock"];
  return isObject(found) && marks.some((mark) => mark in found);
}

function isObject(found: unknown): found is object {
  return typeof found === "object" && found !== null;
}

function noAlgorithmsText(path: string, exported: Readonly<Record<string, unknown>>): string {
  const kinds = Object.entries(exported).map(([name, value]) => `${name} is ${kindOf(value)}`);
  const found = kinds.length === 0 ? "it exports nothing" : kinds.join(", ");
  const needs = "export default { name, summary, write, … }; docs/algorithms.md says how";
  return `${path} exports no algorithm: ${found}; needs ${needs}`;
}

function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

/** A user's algorithm and its origin. */
interface UserAlgorithm {
  readonly collective: SpecifiedCollective;
  readonly algorithm: Algorithm;
  /** The file, as printed by commands. */
  readonly file: string;
  /** The option that names the file. */
  readonly option: string;
}

/** The worlds for which an algorithm is verified. */
export interface VerifiedWorlds {
  readonly ranks: number;
  /** Roots of the calls, for collectives with a root. */
  readonly roots: readonly number[];
}

/** Most ranks to verify: larger programs take seconds, and wrong algorithms fail on fewer ranks. */
const maxVerifiedRanks = 1024;

/** Range of rank counts that distinguishes the collectives. */
const [minDistinct, maxDistinct] = [2, 8];

/** @throws InvalidArgumentError if a part is missing; UsageError if the algorithm fits another collective. */
function assertWhole(own: UserAlgorithm): void {
  suggestOtherCollective(own, maxDistinct, () =>
    assertAlgorithmFields(own.collective, own.algorithm, `${whereOf(own)}: `),
  );
}

/**
 * Verifies an algorithm and returns the number of verified ranks, halved while the program is too large. Halving keeps powers
 * of two.
 *
 * @throws InvalidArgumentError if the algorithm is not sound; UsageError if it is sound for another collective.
 */
export function verifyUserAlgorithm(own: UserAlgorithm, { ranks, roots }: VerifiedWorlds): number {
  let verifiedRanks = ranks;
  while (verifiedRanks > maxVerifiedRanks) verifiedRanks = Math.floor(verifiedRanks / 2);
  for (;;) {
    try {
      suggestOtherCollective(own, verifiedRanks, () => assertSound(own, verifiedRanks, roots));
      return verifiedRanks;
    } catch (error) {
      if (!isTooLarge(error) || verifiedRanks === 1) throw error;
      verifiedRanks = Math.floor(verifiedRanks / 2);
    }
  }
}

function assertSound(own: UserAlgorithm, ranks: number, roots: readonly number[]): void {
  const { collective, algorithm } = own;
  const { rooted } = specifications[collective];
  const distinct = new Set(rooted ? roots.map((root) => Math.min(root, ranks - 1)) : [-1]);
  for (const root of distinct) {
    soundProgram(collective, algorithm, ranks, root, `${whereOf(own)}: `);
  }
}

/** If checks fail for this collective and pass for another one, the file was probably written for that. */
function suggestOtherCollective(own: UserAlgorithm, ranks: number, assert: () => void): void {
  try {
    assert();
  } catch (error) {
    if (!(error instanceof InvalidArgumentError)) throw error;
    const distinctRanks = Math.min(Math.max(ranks, minDistinct), maxDistinct);
    if (isSound(own, own.collective, distinctRanks)) throw error;
    const others = builtCollectives.filter((other) => isSound(own, other, distinctRanks));
    if (others.length === 0) throw error;
    const sound = `"${own.algorithm.name}" is sound as ${others.join(", ")}, not as ${own.collective}`;
    throw new UsageError(`${error.message}\n${sound}: name that collective, or mend the algorithm`);
  }
}

function isSound({ algorithm }: UserAlgorithm, collective: SpecifiedCollective, ranks: number) {
  try {
    assertAlgorithmFields(collective, algorithm);
    soundProgram(collective, algorithm, ranks, specifications[collective].rooted ? 0 : -1);
    return true;
  } catch {
    return false;
  }
}

function whereOf({ option, file }: UserAlgorithm): string {
  return `${option} ${file}`;
}
