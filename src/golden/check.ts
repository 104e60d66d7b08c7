/** Checks that calls still give their recorded results. */
import { firstDifference } from "../api/bits.ts";
import { bytesOf, type HostArray } from "../api/index.ts";
import { resultElements } from "./case.ts";
import { type GoldenPlan, type GoldenRecord, idOf } from "./format.ts";
import { orderSensitiveElements as sensitiveElements } from "./order-sensitive.ts";
import { hashesOf, recordedOutput } from "./outputs.ts";
import { type BackendFor, type Outcome, replay } from "./replay.ts";

/** A case with another result than the recorded one. */
export interface Mismatch {
  /** Index of the case in the file. */
  readonly index: number;
  readonly case: string;
  /** The first rank with a wrong output. */
  readonly rank: number;
  /** Hash of that rank's output: recorded, and found. */
  readonly wantHash: string;
  readonly haveHash: string;
  /** The first wrong element, if the file or a correct rank has its expected bits. */
  readonly element: ElementDifference | undefined;
  /** The plan that was followed, and the one that the library reported. */
  readonly plan: GoldenPlan | undefined;
  readonly recordedPlan: GoldenPlan | undefined;
}

/** Bits of one element. */
export interface ElementDifference {
  readonly element: number;
  readonly length: number;
  readonly want: string;
  readonly have: string;
}

/** A case that could not be replayed. */
export interface Refusal {
  readonly index: number;
  readonly case: string;
  /** The first line of the error. */
  readonly reason: string;
}

/** A case that follows another plan than the library reported. */
export interface PlanDifference {
  readonly index: number;
  readonly case: string;
  /** The library chose the plan; else algorithm and protocol were forced. */
  readonly isChoice: boolean;
  readonly plan: GoldenPlan | undefined;
  readonly recordedPlan: GoldenPlan;
}

/** Findings of a check, in the order of the file. */
export interface CheckReport {
  readonly cases: number;
  readonly identical: number;
  /** Elements of the identical results. */
  readonly elements: number;
  /** Those of them with bits that depend on the order of folding; `undefined` unless `countsSensitive`. */
  readonly orderSensitiveElements: number | undefined;
  readonly mismatches: readonly Mismatch[];
  readonly refusals: readonly Refusal[];
  /** Cases with a reported plan. */
  readonly plans: number;
  /** Those of them whose plan the library chose. */
  readonly choices: number;
  /** Cases that follow another plan than the recorded one. */
  readonly planDifferences: readonly PlanDifference[];
}

/** Options of a check. */
export interface CheckOptions {
  /** Also count the elements with bits that depend on the order of folding. */
  readonly countsSensitive?: boolean | undefined;
  /** Gets the numbers of completed and of differing cases. */
  readonly onProgress?: ((done: number, wrong: number) => void) | undefined;
}

/** Replays every record. */
export async function check(
  records: readonly GoldenRecord[],
  backendFor: BackendFor,
  { countsSensitive = false, onProgress }: CheckOptions = {},
): Promise<CheckReport> {
  const mismatches: Mismatch[] = [];
  const refusals: Refusal[] = [];
  const planDifferences: PlanDifference[] = [];
  const counts = { identical: 0, elements: 0, plans: 0, choices: 0 };
  let sensitive = 0;
  let done = 0;
  await replay(records, backendFor, (index, outcome) => {
    const record = records[index] as GoldenRecord;
    if (outcome.failure !== undefined) {
      const [reason = ""] = outcome.failure.message.split("\n");
      refusals.push({ index, case: idOf(record), reason });
    } else {
      const mismatch = mismatchOf(record, index, outcome);
      if (mismatch === undefined) {
        counts.identical++;
        counts.elements += resultElements(record);
        if (countsSensitive) sensitive += sensitiveElements(record);
      } else mismatches.push(mismatch);
      if (record.plan !== undefined) {
        counts.plans++;
        const isChoice = record.forced === undefined;
        if (isChoice) counts.choices++;
        const plan = outcome.plan();
        if (!samePlan(plan, record.plan)) {
          planDifferences.push({
            ...{ index, case: idOf(record), isChoice },
            ...{ plan, recordedPlan: record.plan },
          });
        }
      }
    }
    onProgress?.(++done, done - counts.identical);
  });
  for (const list of [mismatches, refusals, planDifferences]) {
    list.sort((a, b) => a.index - b.index);
  }
  const orderSensitiveElements = countsSensitive ? sensitive : undefined;
  return {
    ...{ cases: records.length, ...counts, orderSensitiveElements },
    ...{ mismatches, refusals, planDifferences },
  };
}

function mismatchOf(
  record: GoldenRecord,
  index: number,
  { outputs = [], plan }: Outcome,
): Mismatch | undefined {
  const hashes = hashesOf(outputs);
  const expected = outputs.map((_, rank) => recordedOutput(record, record.hashes, rank));
  const rank = hashes.findIndex((hash, at) => hash !== expected[at]);
  if (rank < 0) return undefined;
  // All ranks of an all-reduce hold the same bits, so a correct one shows the contents of the others.
  const sameForAll = record.collective === "allReduce";
  const right = sameForAll ? outputs.find((_, at) => hashes[at] === expected[at]) : undefined;
  return {
    index,
    case: idOf(record),
    rank,
    wantHash: expected[rank] ?? "none",
    haveHash: hashes[rank] ?? "none",
    element: elementOf(record, rank, outputs[rank], right),
    plan: plan(),
    recordedPlan: record.plan,
  };
}

/** The first element that differs from the recorded bits, or from a rank with the recorded hash. */
function elementOf(
  record: GoldenRecord,
  rank: number,
  output: HostArray | undefined,
  right: HostArray | undefined,
): ElementDifference | undefined {
  const recorded =
    record.bits === undefined ? undefined : recordedOutput(record, record.bits, rank);
  const want = recorded === undefined ? right : Buffer.from(recorded, "hex");
  if (want === undefined || output === undefined) return undefined;
  const found = firstDifference(want, output, bytesOf(record.dtype));
  if (found === undefined) return undefined;
  return { element: found.element, length: output.length, want: found.a, have: found.b };
}

function samePlan(a: GoldenPlan | undefined, b: GoldenPlan): boolean {
  return a?.algorithm === b.algorithm && a.protocol === b.protocol && a.channels === b.channels;
}
