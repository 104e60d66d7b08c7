/**
 * The duties of every backend, as one body of tests.
 *
 * Ranks may live in one process (`worlds.ts`) or in processes of their own (`processes.ts`): they do the named parts of
 * `parts.ts`, and what they give is judged here, by oracles and by the contract, never by a backend. Nothing is skipped.
 */

import type { Capabilities } from "twinccl";
import { gatherRun, type Program, type ProgramCall } from "twinccl/testing";
import { describe, expect, test } from "vitest";
import { everyDType } from "../../src/testing/oracle/elements.ts";
import { judgeRun } from "../../src/testing/oracle/judge.ts";
import type { OracleOp } from "../../src/testing/oracle/rounding.ts";
import { healthyAmong } from "../support/health.ts";
import type { Ranks } from "../support/parts.ts";
import { copyCalls, questionOf, reduceCall } from "./judged-calls.ts";
import type { SuiteParts } from "./parts.ts";

/** The ranks of a communicator, ready for parts. */
export type SuiteRanks = Ranks<SuiteParts>;

/** Opens ranks, or takes those that are open, and has them used alone. */
export type UseRanks = <T>(size: number, use: (ranks: SuiteRanks) => Promise<T>) => Promise<T>;

/** Claims about a backend under test, wherever its ranks live. */
export interface Claims {
  readonly name: string;
  /** Numbers of ranks that can be had here; at least one. */
  readonly sizes: readonly number[];
  readonly capabilities: Capabilities;
  /** All ranks use one device. */
  readonly sharesDevice?: boolean;
}

/** A backend under test, and how its ranks are had. */
export interface Subject extends Claims {
  /** Name of the backend, as it gives it. */
  readonly backend: string;
  readonly use: UseRanks;
  /** The same with calls that are compared before they run, where it is an option. */
  readonly useCompared?: UseRanks;
}

const operators: readonly OracleOp[] = ["sum", "prod", "min", "max", "avg", { preMul: 2 }];

async function judge(
  ranks: SuiteRanks,
  issue: Program["issue"],
  calls: readonly ProgramCall[],
): Promise<void> {
  const steps = calls.map((call) => ({ kind: "call", comm: 0, call }) as const);
  const program: Program = { size: ranks.size, issue, splits: [], steps };
  const held = await ranks.each("programs", [program]);
  const byRank = held.map(([only = []]) => only);
  judgeRun(program, gatherRun(program, byRank, "the subject"));
}

/** Runs the calls that all ranks say they support; the others must be refused by every rank. */
async function judgeSupported(
  ranks: SuiteRanks,
  issue: Program["issue"],
  calls: readonly ProgramCall[],
): Promise<void> {
  const answers = await ranks.each("supports", calls.map(questionOf));
  const [first = []] = answers;
  for (const each of answers) expect(each, "ranks of one world give one answer").toEqual(first);
  expect(first.length).toBe(calls.length);
  const supported = calls.filter((_, at) => first[at]);
  const others = calls.filter((_, at) => !first[at]);
  if (others.length > 0) {
    const codes = await ranks.each("refusals", others);
    const refused = others.map(() => "ERR_COMM_UNSUPPORTED");
    const kinds = others.map((call) => `${"dtype" in call ? call.dtype : ""} ${call.kind}`);
    expect(codes, kinds.join()).toEqual(sameOn(ranks, refused));
    await expectHealthy(ranks);
  }
  if (supported.length > 0) await judge(ranks, issue, supported);
}

/** The ranks still work. */
async function expectHealthy(ranks: SuiteRanks): Promise<void> {
  expect(await ranks.each("healthOf")).toEqual(sameOn(ranks, healthyAmong(ranks.size)));
}

function sameOn<T>({ size }: SuiteRanks, value: T): T[] {
  return new Array<T>(size).fill(value);
}

/** Runs every test of the suite on one backend. */
export function conformance(subject: Subject): void {
  const { name, backend, sizes, capabilities, use, useCompared = use } = subject;
  const least = sizes[0] as number;
  const most = sizes.at(-1) as number;

  describe(`${name} conforms`, () => {
    test("opens with its name and the capabilities it declares", async () => {
      await use(least, async (ranks) => {
        const found = await ranks.each("whatIsIt");
        expect(found).toEqual(sameOn(ranks, { backend, capabilities }));
      });
    });

    test("gives ranks, sizes and devices", async () => {
      for (const size of sizes) {
        await use(size, async (ranks) => {
          const places = await ranks.each("placeOf");
          expect(places.map(({ rank }) => rank)).toEqual(Array.from({ length: size }, (_, r) => r));
          expect(places.map((place) => place.size)).toEqual(sameOn(ranks, size));
          const devices = new Set(places.map(({ device }) => device));
          expect(devices.size).toBe(subject.sharesDevice === true ? 1 : size);
        });
      }
    });

    test("reduces exact payloads for every dtype and operator", async () => {
      for (const size of sizes) {
        for (const dtype of everyDType) {
          const calls = operators.map((op, at) => reduceCall(dtype, op, 13 + at, at, size));
          await use(size, (ranks) => judgeSupported(ranks, "together", calls));
        }
      }
    });

    test("copies bytes, NaN payloads included, for every dtype", async () => {
      for (const size of sizes) {
        for (const [at, dtype] of everyDType.entries()) {
          await use(size, (ranks) => judgeSupported(ranks, "each", copyCalls(dtype, size, at)));
        }
      }
    });

    test("accepts counts of zero, one, and less than the number of ranks", async () => {
      for (const size of sizes) {
        for (const count of [0, 1, size - 1, size, size + 1]) {
          const calls = (["sum", "max"] as const).map((op) =>
            reduceCall("int32", op, count, count, size),
          );
          await use(size, (ranks) => judge(ranks, "each", calls));
        }
      }
    });

    test("holds every rank at a barrier until the last one arrives", async () => {
      for (const size of sizes) {
        await use(size, async (ranks) => {
          const times = await ranks.each("barrier");
          const entered = times.map((each) => each.entered);
          for (const [rank, { left }] of times.entries()) {
            const early = entered.filter((each) => each > left);
            expect(early, `ranks that came after rank ${rank} had left`).toEqual([]);
          }
        });
      }
    });

    test("runs calls in order, also when they are awaited later", async () => {
      await use(most, async (ranks) => {
        const total = BigInt(most) ** 4n;
        expect(await ranks.each("sumsInOrder")).toEqual(sameOn(ranks, [total, total, total]));
      });
    });

    test("reads the contents at the call, not those written later", async () => {
      await use(least, async (ranks) => {
        const needed = [
          [1, 1, 1],
          [2, 2, 2],
          [3, 4, 5],
        ];
        expect(await ranks.each("earlyReads")).toEqual(sameOn(ranks, needed));
      });
    });

    test("gives the same bits in every run", async () => {
      await use(most, async (ranks) => {
        const first = await ranks.each("noisySum");
        expect(new Set(first).size).toBe(1);
        expect(await ranks.each("noisySum")).toEqual(first);
      });
    });

    test("refuses wrong arguments on the rank that gives them", async () => {
      await use(least, async (ranks) => {
        const codes = await ranks.each("wrongArguments");
        expect(codes).toEqual(sameOn(ranks, new Array(6).fill("ERR_COMM_ARG")));
        await expectHealthy(ranks);
      });
    });

    test("rejects calls that differ between ranks, writes nothing, and continues", async () => {
      if (most === 1) return;
      await useCompared(most, async (ranks) => {
        // Of two ranks the first one's value is the norm.
        const told = { code: "ERR_COMM_MISMATCH", field: "count", ranks: [1] };
        // Nothing was written: the same memory has the right sum next.
        const held = [new Array(8).fill(3 * most), [0]];
        expect(await ranks.each("disagreement")).toEqual(sameOn(ranks, { ...told, held }));
        await expectHealthy(ranks);
      });
    });

    test("replays a recording until it is disposed, and refuses it then", async () => {
      await use(most, async (ranks) => {
        const sum = (2 * most) ** 2;
        const needed = { disposed: true, code: "ERR_COMM_CLOSED", held: [sum, sum] };
        expect(await ranks.each("replays")).toEqual(sameOn(ranks, needed));
        await expectHealthy(ranks);
      });
    });

    test("closes a communicator permanently", async () => {
      await use(least, async (ranks) => {
        expect(await ranks.each("closedTwice")).toEqual(sameOn(ranks, "ERR_COMM_CLOSED"));
        await expectHealthy(ranks);
      });
    });

    test("names communicators of the same color differently, alike on all ranks", async () => {
      await use(most, async (ranks) => {
        const names = await ranks.each("splitNames");
        expect(new Set(names[0]).size).toBe(3);
        expect(names).toEqual(sameOn(ranks, names[0]));
        await expectHealthy(ranks);
      });
    });

    test("explains a call without running it", async () => {
      await use(most, async (ranks) => {
        const question = { dtype: "float32", op: "sum", count: 100 } as const;
        const plans = await ranks.each("explanation", { ...question, collective: "allReduce" });
        for (const plan of plans) {
          expect(plan).toMatchObject({ collective: "allReduce", ranks: most });
          expect(plan.chunks.reduce((sum, { length }) => sum + length, 0)).toBe(100);
          for (const { order } of plan.chunks) {
            const sorted = [...order].sort((a, b) => a - b);
            expect(sorted).toEqual(Array.from({ length: most }, (_, rank) => rank));
          }
          expect(plan.text).toContain("allReduce");
        }
        expect(plans).toEqual(sameOn(ranks, plans[0]));
      });
    });
  });
}
