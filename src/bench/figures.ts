/** The findings of the ranks of a trial, and the one measurement that it makes. */

import { bytesOf, type DType } from "../api/index.ts";
import { largest } from "../api/largest.ts";
import type { CallShape, MeasuredCollective } from "./collectives.ts";
import type { Measurement } from "./document.ts";
import type { Issue, Timed } from "./issue.ts";

/** One rank's figures; numbers only, so that processes can exchange them. */
export interface RankFigures {
  /** Milliseconds on a clock that the ranks of one process share. */
  readonly began: number;
  readonly ended: number;
  /** Microseconds of a call timed alone; 0 where none was. */
  readonly median: number;
  readonly p99: number;
  /** Wrong elements of this rank's result, and elements that were compared. */
  readonly wrong: number;
  readonly checked: number;
}

/** A rank's figures out of its times. */
export function figuresOf(
  { began, ended, samples }: Timed,
  { wrong, checked }: Pick<RankFigures, "wrong" | "checked">,
): RankFigures {
  const at = (part: number): number => samples[Math.floor(part * (samples.length - 1))] ?? 0;
  return { began, ended, median: at(0.5), p99: at(0.99), wrong, checked };
}

/** The measurement of a call: the slowest rank's times, everybody's wrong elements. */
export function measurementOf(
  figures: readonly RankFigures[],
  call: {
    readonly row: MeasuredCollective;
    readonly shape: CallShape;
    readonly dtype: DType;
    readonly iterations: number;
    readonly issue: Issue;
    readonly check: boolean;
  },
): Measurement {
  const { row, shape, dtype, iterations, issue, check } = call;
  const most = (of: (figures: RankFigures) => number): number => largest(figures.map(of));
  const sum = (of: (figures: RankFigures) => number): number =>
    figures.reduce((total, each) => total + of(each), 0);
  const elapsedMs =
    most(({ ended }) => ended) -
    figures.reduce((least, { began }) => Math.min(least, began), Number.POSITIVE_INFINITY);
  const time = issue.latency ? most(({ median }) => median) : (elapsedMs * 1000) / iterations;
  const bandwidth = time > 0 ? (shape.sizeElements * bytesOf(dtype)) / 1e3 / time : 0;
  return {
    time,
    ...(issue.latency && { p99: most(({ p99 }) => p99) }),
    alg_bw: bandwidth,
    bus_bw: bandwidth * row.busFactor(shape.ranks),
    nwrong: check ? sum(({ wrong }) => wrong) : null,
    checked: sum(({ checked }) => checked),
  };
}
