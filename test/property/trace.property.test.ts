/**
 * The trace of a healthy program is well formed: in order of time, every call ended, every message taken by its
 * receiver after it was sent, and no port of a rank in use twice at a time.
 */

import { createWorld } from "twinccl";
import {
  type AlgorithmChoice,
  algorithmsOf,
  buildProgram,
  builtCollectives,
  stepAt,
  stepCount,
} from "twinccl/algorithms";
import { sim, Trace } from "twinccl/sim";
import { type Program, type ProgramCall, programs, runProgram } from "twinccl/testing";
import { describe, expect, test } from "vitest";
import { holds } from "../support/seed.ts";

const latencyNs = 700;

/** Collectives of the world, one after another: number k of them is step k. */
const kinds = [
  "allReduce",
  "reduce",
  "broadcast",
  "allGather",
  "allGatherv",
  "reduceScatter",
  "reduceScatterv",
  "allToAll",
  "allToAllv",
  "gather",
  "scatter",
  "barrier",
] as const;
const cases = programs({ payload: "bits", maxSplits: 0, steps: ["call"], kinds });

type Kind = (typeof kinds)[number];

interface Message {
  readonly call: number;
  readonly from: number;
  readonly to: number;
  readonly elements: number;
  readonly sendStart: number;
  readonly sendEnd: number;
  readonly began: number;
  readonly done: number;
}

const messageLine =
  /^(\d+) recv rank=(\d+) from=(\d+) comm=world call=(\d+) channel=\d+ elements=(\d+) sent=(\d+)\.\.(\d+) began=(\d+)$/;

function messagesIn(text: string): Message[] {
  return text.split("\n").flatMap((line) => {
    const numbers = messageLine.exec(line)?.slice(1).map(Number);
    if (numbers === undefined) return [];
    const [done, to, from, call, elements, sendStart, sendEnd, began] = numbers as [
      number,
      number,
      number,
      number,
      number,
      number,
      number,
      number,
    ];
    return [{ call, from, to, elements, sendStart, sendEnd, began, done }];
  });
}

/** Lines of one kind, by rank and call: the time of each. */
function times(text: string, kind: "post" | "done"): Map<string, number> {
  const pattern = new RegExp(`^(\\d+) ${kind} rank=(\\d+) comm=world call=(\\d+) (.*)$`);
  const found = new Map<string, number>();
  for (const line of text.split("\n")) {
    const match = pattern.exec(line);
    if (match === null) continue;
    const key = `${match[2]}/${match[3]}/${match[4]}`;
    expect(found.has(key), `${kind} ${key} twice`).toBe(false);
    found.set(key, Number(match[1]));
  }
  return found;
}

/** No two of the intervals overlap; touching is allowed. */
function assertApart(what: string, intervals: readonly (readonly [number, number])[]): void {
  const sorted = intervals.filter(([from, to]) => to > from).sort((a, b) => a[0] - b[0]);
  for (const [at, [from]] of sorted.entries()) {
    const before = sorted[at - 1];
    if (before !== undefined) expect(from, what).toBeGreaterThanOrEqual(before[1]);
  }
}

/** Messages that the default algorithm of a call sends. */
function sendsOf(call: ProgramCall, size: number): number {
  const kind = call.kind as Kind;
  const root = "root" in call ? call.root : -1;
  const [algorithm] = algorithmsOf(kind);
  const program = buildProgram(kind, algorithm as NonNullable<typeof algorithm>, size, root);
  let sends = 0;
  for (let step = 0; step < stepCount(program); step++) {
    if (stepAt(program, step).to >= 0) sends += 1;
  }
  return sends;
}

/** The first algorithm of the catalogue for everything, by name: NCCL's plans have messages of their own. */
const firsts: AlgorithmChoice = Object.fromEntries(
  builtCollectives.map((collective) => [collective, algorithmsOf(collective)[0]?.name]),
);

async function traceOf(program: Program, algorithms = firsts): Promise<string> {
  const trace = new Trace();
  const link = { latencyNs, gigabytesPerSecond: 1 };
  await runProgram(sim({ trace, link, algorithms }), program);
  return trace.toText();
}

function assertMessages(text: string, program: Program): void {
  const messages = messagesIn(text);
  const exchanges = (call: ProgramCall): number =>
    call.kind === "allToAllv" && call.give === "exchange" ? 2 : 1;
  program.steps.forEach((step, number) => {
    if (step.kind !== "call") throw new Error("only single calls were drawn");
    const { call } = step;
    const found = messages.filter((message) => message.call === number).length;
    expect(found, `messages of call ${number}`).toBe(sendsOf(call, program.size) * exchanges(call));
  });
}

function assertWellFormed(text: string): void {
  const lineTimes = text
    .trimEnd()
    .split("\n")
    .map((line) => Number(/^\d+/.exec(line)?.[0]));
  expect(lineTimes).toEqual([...lineTimes].sort((a, b) => a - b));
  const posts = times(text, "post");
  const dones = times(text, "done");
  expect([...dones.keys()].sort()).toEqual([...posts.keys()].sort());
  for (const [key, time] of posts) expect(dones.get(key)).toBeGreaterThanOrEqual(time);
  const messages = messagesIn(text);
  for (const { sendStart, sendEnd, began, done } of messages) {
    expect(began).toBeGreaterThanOrEqual(sendStart + 1000 * latencyNs);
    expect(done - began).toBe(sendEnd - sendStart);
  }
}

function assertPortsApart(text: string, size: number): void {
  const messages = messagesIn(text);
  for (let rank = 0; rank < size; rank++) {
    const out = messages.filter(({ from }) => from === rank);
    const into = messages.filter(({ to }) => to === rank);
    assertApart(
      `send port of rank ${rank}`,
      out.map((m) => [m.sendStart, m.sendEnd]),
    );
    assertApart(
      `receive port of rank ${rank}`,
      into.map((m) => [m.began, m.done]),
    );
  }
}

describe("the trace of a healthy program", () => {
  test("is in order, complete, and its messages match", async () => {
    await holds(
      cases,
      async (program) => {
        const text = await traceOf(program);
        assertWellFormed(text);
        assertMessages(text, program);
      },
      150,
    );
  });

  test("is in order and complete under NCCL's plans too", async () => {
    await holds(cases, async (program) => assertWellFormed(await traceOf(program, {})), 100);
  });

  test("uses a port for one message at a time when calls are awaited", async () => {
    await holds(
      cases.map((program) => ({ ...program, issue: "each" as const })),
      async (program) => assertPortsApart(await traceOf(program), program.size),
      150,
    );
  });

  test("uses a port for one message at a time when calls are awaited later", async () => {
    await holds(
      cases.map((program) => ({ ...program, issue: "together" as const })),
      async (program) => assertPortsApart(await traceOf(program), program.size),
      150,
    );
  });

  test("has the Chrome trace of the same messages, arrows paired by id", async () => {
    await holds(
      cases,
      async (program) => {
        const trace = new Trace();
        await runProgram(sim({ trace }), program);
        const { traceEvents } = trace.toChrome();
        const starts = traceEvents.filter(({ ph }) => ph === "s").map(({ id }) => id);
        const ends = traceEvents.filter(({ ph }) => ph === "f").map(({ id }) => id);
        expect(new Set(starts).size).toBe(starts.length);
        expect([...ends].sort()).toEqual([...starts].sort());
        expect(starts).toHaveLength(messagesIn(trace.toText()).length);
        for (const { ph, ts, dur } of traceEvents) {
          if (ph === "X") expect(Number(ts) >= 0 && Number(dur) >= 0).toBe(true);
        }
      },
      60,
    );
  });

  test("shows work, with its label, between the calls around it", async () => {
    const trace = new Trace();
    const world = await createWorld({ backend: sim({ trace }), size: 2 });
    await world.run(async (comm) => {
      await comm.barrier();
      if (comm.rank === 1) comm.work(2.5, "forward");
      await comm.barrier();
    });
    await world.close();
    const text = trace.toText();
    const end = Number(/ work rank=1 until=(\d+) forward/.exec(text)?.[1]);
    const start = Number(/(\d+) work rank=1/.exec(text)?.[1]);
    expect(end - start).toBe(2500);
    expect(text).toContain(`${end} post rank=1 comm=world call=1 barrier`);
    trace.clear();
    expect([trace.length, trace.toText()]).toEqual([0, ""]);
  });
});
