/** Records the results of calls on a backend. */
import { bytesOf, type HostArray } from "../api/index.ts";
import type { GoldenCase } from "./case.ts";
import { type GoldenPlan, type GoldenRecord, idOf } from "./format.ts";
import { hashesOf, hexOf, shared } from "./outputs.ts";
import { type BackendFor, type Outcome, replay } from "./replay.ts";

/** Options of a recording. */
export interface RecordOptions {
  readonly backendFor: BackendFor;
  /** Largest output in bytes that is recorded whole; by default 0, which records hashes only. */
  readonly bitsUpTo?: number | undefined;
  /** The library's report of a call, from libraries that have one; a prediction is no record. */
  readonly planOf?: (golden: GoldenCase, outcome: Outcome) => GoldenPlan | undefined;
  readonly onProgress?: ((done: number) => void) | undefined;
}

/** The result. */
export interface Recording {
  /** In the order of the calls, without those that failed. */
  readonly records: readonly GoldenRecord[];
  /** Calls without a record, each with the reason. */
  readonly failures: readonly { readonly case: string; readonly reason: string }[];
}

/** Makes every call and records its result. A call with different results on its ranks has none to record. */
export async function record(
  cases: readonly GoldenCase[],
  { backendFor, bitsUpTo = 0, planOf, onProgress }: RecordOptions,
): Promise<Recording> {
  const recorded: (GoldenRecord | undefined)[] = cases.map(() => undefined);
  const reasons: (string | undefined)[] = cases.map(() => undefined);
  let done = 0;
  await replay(cases, backendFor, (index, outcome) => {
    const golden = cases[index] as GoldenCase;
    const outputs = outcome.outputs ?? [];
    const isShort = golden.count * bytesOf(golden.dtype) <= bitsUpTo;
    const hex = (output: HostArray | undefined): string | undefined => output && hexOf(output);
    const found =
      outcome.failure?.message.split("\n")[0] ??
      recordOf(golden, {
        hashes: hashesOf(outputs),
        bits: isShort ? outputs.map(hex) : undefined,
        plan: planOf?.(golden, outcome),
      });
    if (typeof found === "string") reasons[index] = found;
    else recorded[index] = found;
    onProgress?.(++done);
  });
  return {
    records: recorded.filter((each) => each !== undefined),
    failures: cases.flatMap((golden, index) => {
      const reason = reasons[index];
      return reason === undefined ? [] : [{ case: idOf(golden), reason }];
    }),
  };
}

/** The results of a call by rank. */
interface RankResults {
  readonly hashes: readonly (string | undefined)[];
  readonly bits: readonly (string | undefined)[] | undefined;
  readonly plan: GoldenPlan | undefined;
}

/** The record of a call; a text is the reason for none: an all-reduce gives every rank the same bits. */
export function recordOf(
  golden: GoldenCase,
  { hashes, bits, plan }: RankResults,
): GoldenRecord | string {
  const other = hashes.findIndex((hash) => hash !== hashes[0]);
  if (golden.collective === "allReduce" && other > 0) {
    return `ranks 0 and ${other} hold different results`;
  }
  return {
    ...golden,
    hashes: shared(golden, hashes),
    bits: bits && shared(golden, bits),
    plan,
  };
}
