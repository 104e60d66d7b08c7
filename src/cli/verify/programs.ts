/** Verifies the catalogue's programs; the table has one line per algorithm, over all rank counts. */
import {
  type Algorithm,
  algorithmsOf,
  builtCollectives,
  isTooLarge,
  verifyAlgorithm,
} from "../../algorithms/index.ts";
import { countText } from "../../api/error-text.ts";
import { type SpecifiedCollective, specifications } from "../../api/index.ts";

/** An algorithm and its collective. */
export interface CatalogueRow {
  readonly collective: SpecifiedCollective;
  readonly algorithm: Algorithm;
}

/** The verifier's result for one algorithm. */
export interface ProgramReport extends CatalogueRow {
  /** Number of verified programs, and of those without a problem. */
  readonly programs: number;
  readonly sound: number;
  /** Figures of the program for the most ranks. */
  readonly steps: number;
  readonly credits: number;
  readonly seconds: number;
  /** One line per problem, with its rank count; only the first problems of a program. */
  readonly problems: readonly string[];
}

/** Most listed problems of one program. */
const maxProblems = 3;

/** Every row of the catalogue. */
export function catalogueRows(): CatalogueRow[] {
  return builtCollectives.flatMap((collective) =>
    algorithmsOf(collective).map((algorithm) => ({ collective, algorithm })),
  );
}

/**
 * Verifies an algorithm for every number of ranks up to `maxRanks`; rooted collectives with the first and the last rank as
 * root. `onRanks` receives each number first.
 */
export function verifyPrograms(
  row: CatalogueRow,
  maxRanks: number,
  onRanks?: (ranks: number) => void,
): ProgramReport {
  const { collective, algorithm } = row;
  const began = performance.now();
  const problems: string[] = [];
  let [programs, sound, steps] = [0, 0, 0];
  for (let ranks = 1; ranks <= maxRanks; ranks++) {
    onRanks?.(ranks);
    const roots = specifications[collective].rooted ? new Set([0, ranks - 1]) : [-1];
    for (const root of roots) {
      const verdict = verdictOf(row, ranks, root);
      programs++;
      steps = verdict.steps;
      if (verdict.problems.length === 0) sound++;
      else problems.push(...problemLines(row, { ranks, root }, verdict));
    }
  }
  const seconds = (performance.now() - began) / 1000;
  const credits = algorithm.credits(maxRanks);
  return { ...row, programs, sound, steps, credits, seconds, problems };
}

/** The report of a program, or the reason if the algorithm cannot write it. */
interface ProgramVerdict {
  readonly steps: number;
  readonly problems: readonly { readonly pass: string; readonly text: string }[];
}

function verdictOf(
  { collective, algorithm }: CatalogueRow,
  ranks: number,
  root: number,
): ProgramVerdict {
  try {
    return verifyAlgorithm(collective, algorithm, ranks, root);
  } catch (error) {
    if (isTooLarge(error)) throw error;
    const why = error instanceof Error ? error.message : String(error);
    const text = why.split("\n", 1)[0] ?? "";
    return { steps: 0, problems: [{ pass: "cannot be written", text }] };
  }
}

/** The text of all numbers of ranks up to one. */
export function rankCounts(maxRanks: number): string {
  return maxRanks === 1 ? "1 rank" : `1 to ${maxRanks} ranks`;
}

/** The lines before the table of the programs of the catalogue, or of a file. */
export function programsHead(maxRanks: number, subject: string): string {
  return [
    `# the verifier's verdict on every program of ${subject}, ${rankCounts(maxRanks)}`,
    `# steps and credits are those of ${countText(maxRanks, "rank")}`,
    `#${tableLine("collective", "algorithm", ["programs", "sound", "steps", "credits", "seconds"]).slice(1)}`,
  ].join("\n");
}

/** The line of an algorithm, followed by its problems. */
export function programsLine({
  collective,
  algorithm,
  problems,
  ...report
}: ProgramReport): string {
  const { programs, sound, steps, credits, seconds } = report;
  const figures = [programs, sound, steps, credits, seconds.toFixed(2)].map(String);
  const line = tableLine(collective, algorithm.name, figures);
  return [line, ...problems.map((problem) => `#   ${problem}`), ""].join("\n");
}

function tableLine(collective: string, algorithm: string, figures: readonly string[]): string {
  const numbers = figures.map((figure) => figure.padStart(10)).join("");
  return `  ${collective.padEnd(16)}${algorithm.padEnd(20)}${numbers}`;
}

function problemLines(
  { collective, algorithm }: CatalogueRow,
  { ranks, root }: { readonly ranks: number; readonly root: number },
  { problems }: ProgramVerdict,
): string[] {
  const head = `${collective} ${algorithm.name} on ${countText(ranks, "rank")}${root < 0 ? "" : `, root ${root}`}`;
  const lines = problems.slice(0, maxProblems).map(({ pass, text }) => `${head}: ${pass}: ${text}`);
  const more = problems.length - lines.length;
  return more === 0 ? lines : [...lines, `${head}: ${more} more problems`];
}
