/** The likely meaning of a command line with a first word that is no command. */
import type { CollectiveName } from "../api/index.ts";
import { nearest } from "../api/nearest.ts";
import { findCollective } from "../bench/index.ts";

/** The words to write behind `twinccl` instead; `undefined` where nothing is near. */
export function meantBy(word: string, names: readonly string[]): string | undefined {
  const collective = meantCollective(word);
  if (collective !== undefined) return `bench ${collective}, with nccl-tests' options`;
  if (/\.[cm]?[jt]s$/.test(word)) return `run ${word}, or launch -n N ${word}`;
  const near = names
    .map((name) => ({ name, apart: distance(word.toLowerCase(), name) }))
    .filter(({ name, apart }) => apart <= Math.min(2, name.length - 2))
    .sort((a, b) => a.apart - b.apart);
  return near[0]?.name;
}

/** The collective of a program of nccl-tests, such as `all_reduce_perf`, or that which is named in any spelling. */
function meantCollective(word: string): CollectiveName | undefined {
  return findCollective(word.replace(/_perf(_mpi)?$/, ""))?.collective;
}

/** A hint at the collectives, of those that a command takes, that a word which names none may have been meant for. */
export function collectiveHint(word: string, names: readonly string[]): string {
  const meant = meantCollective(word);
  const near = meant === undefined ? nearest(word.replace(/[-_]/g, ""), names) : [meant];
  const [first] = near.filter((name) => names.includes(name));
  return first === undefined ? "" : `\nhint: write ${first}`;
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
