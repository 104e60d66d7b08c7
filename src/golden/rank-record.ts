/** Recording with a process for each rank: one rank's part of every call, and the records put together from all parts. */
import { bytesOf, type Communicator, connect, type HostArray } from "../api/index.ts";
import type { GoldenCase, NcclSetup } from "./case.ts";
import { type GoldenPlan, idOf } from "./format.ts";
import { canonicalOutputs, hashesOf, hexOf } from "./outputs.ts";
import { type Recording, recordOf } from "./record.ts";
import { type BackendFor, bySetup, failureOf, outputOf } from "./replay.ts";

/** One rank's part of a call. */
export interface RankResult {
  readonly index: number;
  /** Hash of the canonical output; left out where the rank has none. */
  readonly hash?: string | undefined;
  readonly bits?: string | undefined;
  /** The reason of the refusal or failure. */
  readonly failure?: string | undefined;
  readonly plan?: GoldenPlan | undefined;
}

/** Options of one rank's part. */
export interface RankRecordOptions {
  readonly backendFor: BackendFor;
  /** Calls in flight, each on a communicator of its own. */
  readonly streams: number;
  readonly bitsUpTo: number;
  /** The library's reports of calls that were made together, by call; `undefined` for those without. */
  readonly plansOf: (
    calls: readonly GoldenCase[],
    comm: Communicator,
  ) => readonly (GoldenPlan | undefined)[];
  readonly report: (results: readonly RankResult[]) => Promise<unknown>;
}

/** Makes this rank's part of every call; all ranks pass the same calls. */
export async function recordRank(
  cases: readonly GoldenCase[],
  options: RankRecordOptions,
): Promise<void> {
  for (const [setup, indices] of bySetup(cases)) {
    for (let left: readonly number[] = indices; left.length > 0; ) {
      left = await recordSome(cases, left, setup, options);
    }
  }
}

/** Makes calls on new communicators until one fails, and returns those that are left. */
async function recordSome(
  cases: readonly GoldenCase[],
  indices: readonly number[],
  setup: NcclSetup,
  options: RankRecordOptions,
): Promise<readonly number[]> {
  const { backendFor, streams, report } = options;
  // A communicator costs more than some calls.
  const wide = Math.max(1, Math.min(streams, Math.floor(indices.length / 8)));
  const backend = await backendFor(setup);
  const comm = await connect({ backend, name: "golden", timeoutMs: 120_000 });
  try {
    const comms: Communicator[] = [comm];
    while (comms.length < wide) comms.push(await comm.split({ color: 0, stream: "own" }));
    for (let at = 0; at < indices.length; at += comms.length) {
      const batch = indices.slice(at, at + comms.length);
      const calls = batch.map((index) => cases[index] as GoldenCase);
      const outcomes = await Promise.allSettled(
        calls.map((golden, i) => outputOf(comms[i] as Communicator, golden)),
      );
      const made = calls.filter((_, i) => outcomes[i]?.status === "fulfilled");
      const plans = options.plansOf(made, comm);
      const results = outcomes.map((outcome, i): RankResult => {
        const [index, golden] = [batch[i] as number, calls[i] as GoldenCase];
        if (outcome.status === "rejected") {
          return { index, failure: failureOf(outcome.reason).message.split("\n")[0] };
        }
        const plan = plans[made.indexOf(golden)];
        return { ...resultOf(golden, outcome.value, options), index, plan };
      });
      await report(results);
      // Communicators cannot be used after a failed call.
      if (results.some(({ failure }) => failure !== undefined)) {
        return indices.slice(at + batch.length);
      }
    }
    return [];
  } finally {
    await comm.close().catch(() => undefined);
  }
}

function resultOf(
  golden: GoldenCase,
  found: HostArray | undefined,
  { bitsUpTo }: RankRecordOptions,
): Omit<RankResult, "index"> {
  const [output] = canonicalOutputs([found], golden);
  if (output === undefined) return {};
  const isShort = golden.count * bytesOf(golden.dtype) <= bitsUpTo;
  return { hash: hashesOf([output])[0], bits: isShort ? hexOf(output) : undefined };
}

/** Collects the parts of all ranks. */
export class RankRecords {
  readonly #cases: readonly GoldenCase[];
  /** Parts by call and rank. */
  readonly #parts: (RankResult | undefined)[][];
  #complete = 0;

  constructor(cases: readonly GoldenCase[]) {
    this.#cases = cases;
    this.#parts = cases.map(() => []);
  }

  /** Number of calls with the parts of all ranks. */
  get complete(): number {
    return this.#complete;
  }

  /** Adds parts of a rank; their indices are those of `places` among all calls. */
  add(rank: number, results: readonly RankResult[], places: readonly number[]): void {
    for (const result of results) {
      const index = places[result.index] as number;
      const parts = this.#parts[index] as (RankResult | undefined)[];
      parts[rank] = result;
      const there = parts.filter((each) => each !== undefined).length;
      if (there === this.#cases[index]?.ranks) this.#complete++;
    }
  }

  /** The records of all complete calls. */
  recording(): Recording {
    const outcomes = this.#cases.map((golden, index) => this.#outcome(golden, index));
    return {
      records: outcomes.filter((each) => typeof each === "object"),
      failures: this.#cases.flatMap((golden, index) => {
        const reason = outcomes[index];
        return typeof reason === "string" ? [{ case: idOf(golden), reason }] : [];
      }),
    };
  }

  #outcome(golden: GoldenCase, index: number): ReturnType<typeof recordOf> {
    const parts = Array.from({ length: golden.ranks }, (_, rank) => this.#parts[index]?.[rank]);
    const missing = parts.indexOf(undefined);
    if (missing >= 0) return `rank ${missing} has not made it`;
    const failed = parts.find((part) => part?.failure !== undefined);
    if (failed?.failure !== undefined) return failed.failure;
    const hasBits = parts.some((part) => part?.bits !== undefined);
    return recordOf(golden, {
      hashes: parts.map((part) => part?.hash),
      bits: hasBits ? parts.map((part) => part?.bits) : undefined,
      plan: parts.find((part) => part?.plan !== undefined)?.plan,
    });
  }
}
