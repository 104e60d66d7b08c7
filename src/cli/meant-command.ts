/** Which command line somebody may have meant whose first word is no command. */
import { findCollective } from "../bench/index.ts";

/** What to write behind `twinccl` instead; `undefined` where nothing is near. */
export function meantBy(word: string, names: readonly string[]): string | undefined {
  // A program of nccl-tests, such as all_reduce_perf, or its collective alone.
  const collective = findCollective(word.replace(/_perf(_mpi)?$/, ""))?.collective;
  if (collective !== undefined) return `bench ${collective}, with nccl-tests' options`;
  if (/\.[cm]?[jt]s$/.test(word)) return `run ${word}, or launch -n N ${word}`;
  const near = names
    .map((name) => ({ name, apart: distance(word.toLowerCase(), name) }))
    .filter(({ name, apart }) => apart <= Math.min(2, name.length - 2))
    .sort((a, b) => a.apart - b.apart);
  return near[0]?.name;
}

/** Letters to insert, delete or replace that make one word of the other. */
function distance(a: string, b: string): number {
  let above = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const [left, up, corner] = [row[j - 1], above[j], above[j - 1]] as [number, number, number];
      row.push(Math.min(left + 1, up + 1, corner + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    above = row;
  }
  return above[b.length] as number;
}
