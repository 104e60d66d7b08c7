/** The algorithms that `predict` compares: those of the catalogue, and any of the user's own. */
import { type Algorithm, algorithmsOf } from "../algorithms/index.ts";
import type { SpecifiedCollective } from "../api/index.ts";
import { type ChosenAlgorithm, namedAlgorithm, ownText } from "./algorithm-choice.ts";
import { UsageError } from "./context.ts";
import { type JudgedWorlds, judge } from "./own-verdict.ts";

/** The compared algorithms. */
export interface Compared {
  /** Those of the catalogue in its order, then the user's own. */
  readonly algorithms: readonly Algorithm[];
  /** Where the user's own came from, and for how many ranks they were found sound. */
  readonly own: readonly OwnRow[];
}

/** One of the user's own. */
export interface OwnRow {
  readonly algorithm: string;
  readonly file: string;
  readonly soundOn: number;
  /** All that in a line. */
  readonly text: string;
}

/**
 * The algorithms of names and files with commas between, or all of the catalogue. The user's own are judged.
 *
 * @throws UsageError for what cannot be meant, and for two of one name. InvalidArgumentError for one that is not sound.
 */
export async function algorithmsWanted(
  collective: SpecifiedCollective,
  text: string | undefined,
  worlds: JudgedWorlds,
): Promise<Compared> {
  const all = algorithmsOf(collective);
  if (text === undefined) return { algorithms: all, own: [] };
  const wanted: ChosenAlgorithm[] = [];
  for (const word of text.split(",")) {
    wanted.push(await namedAlgorithm("--algorithm", collective, word));
  }
  const owned = wanted.flatMap(({ own }) => own ?? []);
  const known = all.filter((each) => wanted.some(({ choice }) => choice === each.name));
  const algorithms = [...known, ...owned.map(({ algorithm }) => algorithm)];
  const names = algorithms.map(({ name }) => name);
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  if (twice !== undefined) {
    throw new UsageError(`--algorithm: two are called "${twice}"; give yours another name`);
  }
  const own = owned.map((each) => {
    const soundOn = judge(each, worlds);
    const { algorithm, file } = each;
    return { algorithm: algorithm.name, file, soundOn, text: ownText(each, soundOn, worlds.ranks) };
  });
  return { algorithms, own };
}
