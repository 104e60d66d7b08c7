/** `--algorithm`: a name of the catalogue for the collective of the command, or a file with one of the user's own. */
import { type Algorithm, algorithmsOf, builtCollectives } from "../algorithms/index.ts";
import { type CollectiveName, type SpecifiedCollective, specifications } from "../api/index.ts";
import { isFile, loadAlgorithm } from "./algorithm-file.ts";
import { type NamedAlgorithms, UsageError } from "./context.ts";
import { assertWhole, type JudgedWorlds, judge, type OwnAlgorithm } from "./own-verdict.ts";

/** The option's values, for help texts. */
export const algorithmHelp = "of the catalogue, or a FILE's (up to 8 ranks NCCL's plan)";

/** The meaning of FILE, for help texts. */
export const algorithmFileHelp = `A FILE such as ./line.mjs exports an algorithm of your own, by default or as its only one;
FILE#NAME is one of several. It is verified first: docs/algorithms.md tells how to write one.
`;

/** The chosen algorithm. */
export interface ChosenAlgorithm {
  readonly algorithm: Algorithm;
  /** The backend's setting: a name, or an algorithm of the user's own. */
  readonly choice: string | Algorithm;
  /** Of one of the user's own where it came from; `undefined` for those of the catalogue. */
  readonly own: OwnAlgorithm | undefined;
}

/** The choice of algorithm for a backend. */
export interface AlgorithmChosen {
  /** Empty when none was named. */
  readonly algorithms: NamedAlgorithms;
  /** The note on an algorithm of the user's own: the judged ranks, and that nothing is claimed. */
  readonly note: string | undefined;
  /** Ranks of the world that one of the user's own was judged for. */
  readonly judged: number | undefined;
}

/**
 * The algorithm that `--algorithm` names for a call, for a backend. One of the user's own is judged first.
 *
 * @throws UsageError for a name or file that cannot be meant. InvalidArgumentError for an algorithm that is not sound.
 */
export async function algorithmChoice(
  collective: CollectiveName,
  text: string | undefined,
  worlds: JudgedWorlds,
): Promise<AlgorithmChosen> {
  if (text === undefined) return { algorithms: {}, note: undefined, judged: undefined };
  const { choice, own } = await namedAlgorithm("--algorithm", collective, text);
  const algorithms = { [collective]: choice };
  if (own === undefined) return { algorithms, note: undefined, judged: undefined };
  const judged = judge(own, worlds);
  return { algorithms, note: ownText(own, judged, worlds.ranks), judged };
}

/** The algorithm of a name or a file; one of a file is complete, but not verified yet. */
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

/** The note on an algorithm of the user's own beside its results. */
export function ownText(
  { collective, algorithm, file }: OwnAlgorithm,
  judged: number,
  ranks: number,
): string {
  const where = `sound on ${judged} ${judged === 1 ? "rank" : "ranks"}`;
  const not = judged === ranks ? "" : `, not judged on ${ranks}`;
  const claim = specifications[collective].reduces
    ? "no claim is made about NCCL's bits"
    : "copies bytes, as every plan does";
  return `${algorithm.name} of ${file}: ${where}${not}; ${claim}`;
}
