/**
 * Found bugs, kept as named cases. A program that once went wrong is one row of `programs`: paste it from the replay
 * line's output. What needs more than a program, such as a timer or a trace, is a test of its own.
 */
import { createWorld, type DeviceBuffer, InvalidArgumentError } from "twinccl";
import { sim, Trace } from "twinccl/sim";
import { type Placement, type Program, type ProgramCall, runProgram } from "twinccl/testing";
import { describe, expect, test } from "vitest";
import { judgeRun } from "../../src/testing/oracle/judge.ts";

const apart: Placement = { form: "apart", lead: 0, tail: 0, host: false };
const data = { payload: "exact", placement: apart } as const;

function program(size: number, ...calls: ProgramCall[]): Program {
  const steps = calls.map((call) => ({ kind: "call", comm: 0, call }) as const);
  return { size, issue: "together", splits: [], steps };
}

const programs: readonly { readonly once: string; readonly program: Program }[] = [
  {
    once: "an all-to-allv with gaps in recvOffsets and recv left out allocated too little",
    program: program(3, {
      ...data,
      kind: "allToAllv",
      dtype: "float32",
      seed: 11,
      counts: [
        [2, 0, 1],
        [0, 3, 4],
        [5, 1, 0],
      ],
      give: "both",
      recv: "allocated",
      order: "reversed",
    }),
  },
  {
    once: "a captured all-to-allv was awaited by the kit itself",
    program: {
      size: 2,
      issue: "each",
      splits: [],
      steps: [
        {
          kind: "replay",
          comm: 0,
          times: 2,
          calls: [
            {
              ...data,
              kind: "allToAllv",
              dtype: "int8",
              seed: 1,
              counts: [
                [5, 1],
                [0, 2],
              ],
              give: "both",
              recv: "exact",
              order: "packed",
            },
            { ...data, kind: "allReduce", dtype: "int8", seed: 2, op: "sum", count: 3 },
          ],
        },
      ],
    },
  },
];

test.each(programs)("$once", async ({ program }) => {
  judgeRun(program, await runProgram(sim(), program));
});

test("pipelined calls of one communicator overlapped in virtual time", async () => {
  const call = { ...data, kind: "allReduce", dtype: "float32", op: "sum", count: 40 } as const;
  const trace = new Trace();
  const link = { latencyNs: 700, gigabytesPerSecond: 1 };
  const pipelined = program(4, { ...call, seed: 1 }, { ...call, seed: 2 }, { ...call, seed: 3 });
  judgeRun(pipelined, await runProgram(sim({ trace, link }), pipelined));
  const text = trace.toText();
  const done = new Map<string, number>();
  for (const [, time, rank, at] of text.matchAll(/^(\d+) done rank=(\d+) comm=\w+ call=(\d+)/gm)) {
    done.set(`${rank}/${at}`, Number(time));
  }
  expect(done.size).toBe(12);
  const sends = text.matchAll(/ recv rank=\d+ from=(\d+) comm=\w+ call=(\d+) .*sent=(\d+)\.\./g);
  let later = 0;
  for (const [, from, at, began] of sends) {
    const before = done.get(`${from}/${Number(at) - 1}`);
    if (before === undefined) continue;
    later += 1;
    expect(Number(began), `rank ${from}, call ${at}`).toBeGreaterThanOrEqual(before);
  }
  expect(later).toBeGreaterThan(0);
});

describe("with more than a program", () => {
  test("a deadlock was declared though a timer of the run had replaced one from before it", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    setTimeout(() => undefined, 10);
    const results = await world.run(async (comm) => {
      if (comm.rank === 0) return "away";
      const timer = new Promise((resolve) => setTimeout(() => resolve("timer"), 60));
      const barrier = comm.barrier().catch(() => "failed");
      return Promise.race([barrier, timer]);
    });
    expect(results).toEqual(["away", "timer"]);
    await world.close();
  });

  test("one host array as recv of several ranks was overwritten in silence", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const recv = new Int32Array(6).fill(7);
    const errors = await world.run(async (comm) => {
      const send = comm.alloc("int32", 2).fill(comm.rank) as DeviceBuffer<"int32">;
      const gathered = comm.allGather({
        send,
        recv: comm.rank === 2 ? comm.alloc("int32", 6) : recv,
      });
      return gathered.then(
        () => undefined,
        (error: unknown) => error,
      );
    });
    for (const error of errors) {
      expect(error).toBeInstanceOf(InvalidArgumentError);
      expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "recv", ranks: [0, 1] });
    }
    expect(recv).toEqual(new Int32Array(6).fill(7));
    await world.close();
  });
});
