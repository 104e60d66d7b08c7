/** The compared algorithms: the catalogue's, or those that `--algorithm` names. */
import { type Algorithm, algorithmsOf } from "../../algorithms/index.ts";
import type { SpecifiedCollective } from "../../api/index.ts";
import {
  type ChosenAlgorithm,
  namedAlgorithm,
  userAlgorithmText,
  type VerifiedWorlds,
  verifyUserAlgorithm,
} from "../algorithms.ts";
import { UsageError } from "../context.ts";
import { wordsOf } from "../options.ts";

/** The compared algorithms. */
export interface Compared {
  /** Algorithms of the catalogue in its order, then the user's. */
  readonly algorithms: readonly Algorithm[];
  /** Origins of the user's algorithms, and their verified ranks. */
  readonly own: readonly UserRow[];
}

/** A user's algorithm. */
export interface UserRow {
  readonly algorithm: string;
  readonly file: string;
  readonly soundOn: number;
  /** One line of text with these facts. */
  readonly text: string;
}

/**
 * The algorithms of a comma-separated list of names and files, or the whole catalogue. User's algorithms are verified.
 *
 * @throws UsageError for unknown names and duplicates. InvalidArgumentError for an algorithm that is not sound.
 */
export async function selectedAlgorithms(
  collective: SpecifiedCollective,
  text: string | undefined,
  worlds: VerifiedWorlds,
): Promise<Compared> {
  const all = algorithmsOf(collective);
  if (text === undefined) return { algorithms: all, own: [] };
  const chosen: ChosenAlgorithm[] = [];
  for (const word of wordsOf("--algorithm", text)) {
    chosen.push(await namedAlgorithm("--algorithm", collective, word));
  }
  const owned = chosen.flatMap(({ own }) => own ?? []);
  const known = all.filter((each) => chosen.some(({ choice }) => choice === each.name));
  const algorithms = [...known, ...owned.map(({ algorithm }) => algorithm)];
  const names = algorithms.map(({ name }) => name);
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  if (twice !== undefined) {
    throw new UsageError(`--algorithm: two are called "${twice}"; give yours another name`);
  }
  const own = owned.map((each) => {
    const soundOn = verifyUserAlgorithm(each, worlds);
    const { algorithm, file } = each;
    return {
      algorithm: algorithm.name,
      file,
      soundOn,
      text: userAlgorithmText(each, soundOn, worlds.ranks),
    };
  });
  return { algorithms, own };
}
