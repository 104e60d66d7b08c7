/** Calls that failed, as a trace shows them: with what, and until when they stood. */
import { type CommOp, type Communicator, createWorld } from "twinccl";
import { failAt, type SimOptions, sim, Trace } from "twinccl/sim";
import { describe, expect, test } from "vitest";

/** A message takes a millisecond, and a barrier of two ranks one of them. */
const link = { latencyNs: 1e6, gigabytesPerSecond: 400 };

const msPs = 1e9;

/** Traces a program of so many ranks, whatever becomes of it. */
async function traced(
  size: number,
  program: (comm: Communicator) => unknown,
  options: SimOptions = {},
): Promise<Trace> {
  const trace = new Trace();
  const world = await createWorld({ backend: sim({ trace, link, ...options }), size });
  await world.run(program).catch(() => undefined);
  await world.close();
  return trace;
}

/** The ends of a trace's calls: time in milliseconds, and the line behind it. */
function ends(trace: Trace): string[] {
  return trace
    .toText()
    .split("\n")
    .flatMap((line) => {
      const [, timePs, text] = /^(\d+) ((?:done|fail) .*)$/.exec(line) ?? [];
      return text === undefined ? [] : [`${Number(timePs) / msPs} ${text}`];
    });
}

const seen = (op: CommOp): PromiseLike<unknown> => op.then(undefined, () => undefined);

/** The calls' row of a rank: name, begin and end in milliseconds, error. */
function calls(trace: Trace, rank: number): unknown[] {
  return trace.toChrome().traceEvents.flatMap((event) => {
    const { ph, pid, tid, name, ts = 0, dur = 0, args, cname } = event;
    if (ph !== "X" || pid !== rank || tid !== 0) return [];
    return [[name, ts / 1e3, (ts + dur) / 1e3, args?.["error"], cname]];
  });
}

describe("a call that failed", () => {
  test("for its deadline, though all had made it, ends at that deadline", async () => {
    const trace = await traced(2, (comm) =>
      seen(comm.rank === 0 ? comm.barrier({ timeoutMs: 0.25 }) : comm.barrier()),
    );
    expect(ends(trace)).toEqual([
      "0.25 fail rank=0 comm=world call=0 error=ERR_COMM_TIMEOUT barrier dissemination",
      "1 done rank=1 comm=world call=0 barrier dissemination",
    ]);
    const failed = ["barrier ERR_COMM_TIMEOUT", 0, 0.25, "ERR_COMM_TIMEOUT", "terrible"];
    expect(calls(trace, 0)).toEqual([failed]);
    expect(calls(trace, 1)).toEqual([["barrier", 0, 1, undefined, undefined]]);
    expect(trace.toText().match(/ post /g)).toHaveLength(2);
  });

  test("in a wait for a missing rank, and what was aborted with it", async () => {
    const trace = await traced(3, async (comm) => {
      if (comm.rank === 2) return;
      comm.work(2e6);
      await seen(comm.rank === 0 ? comm.barrier({ timeoutMs: 5 }) : comm.barrier());
    });
    expect(ends(trace)).toEqual([
      "7 fail rank=0 comm=world call=0 error=ERR_COMM_TIMEOUT barrier",
      "7 fail rank=1 comm=world call=0 error=ERR_COMM_ABORTED barrier",
    ]);
    expect(trace.toText()).toContain(`${2 * msPs} post rank=1 comm=world call=0 barrier\n`);
    expect(calls(trace, 1)).toEqual([
      ["barrier ERR_COMM_ABORTED", 2, 7, "ERR_COMM_ABORTED", "terrible"],
    ]);
  });

  test("behind another call begins when that is done, or not at all", async () => {
    const behind = (timeoutMs: number) =>
      traced(2, async (comm) => {
        const first = comm.barrier();
        const second = comm.rank === 0 ? seen(comm.barrier({ timeoutMs })) : undefined;
        await Promise.all([first, second]);
      });
    const done = ["barrier", 0, 1, undefined, undefined];
    const failed = ["barrier ERR_COMM_TIMEOUT", 1, 3, "ERR_COMM_TIMEOUT", "terrible"];
    expect(calls(await behind(3), 0)).toEqual([done, failed]);
    const early = ["barrier ERR_COMM_TIMEOUT", 0.5, 0.5, "ERR_COMM_TIMEOUT", "terrible"];
    expect(calls(await behind(0.5), 0)).toEqual([early, done]);
  });

  test.each<[string, (comm: Communicator) => unknown, RegExp]>([
    [
      "for ranks that differ",
      (comm) => seen(comm.allReduce({ send: new Int8Array(comm.rank + 1), op: "sum" })),
      /^0 fail rank=[01] comm=world call=0 error=ERR_COMM_MISMATCH allReduce int8\[[12]\]$/,
    ],
    [
      "in a deadlock, at the end of all that was done",
      (comm) => (comm.rank === 0 ? comm.work(5e6) : seen(comm.barrier())),
      /^5 fail rank=1 comm=world call=0 error=ERR_COMM_DEADLOCK barrier$/,
    ],
    [
      "because another rank threw",
      async (comm) => {
        if (comm.rank === 1) await seen(comm.barrier());
        await Promise.resolve();
        if (comm.rank === 0) throw new Error("mine");
      },
      /^0 fail rank=1 comm=world call=0 error=ERR_COMM_REMOTE barrier$/,
    ],
    [
      "by an abort, at the time of who aborts",
      async (comm) => {
        if (comm.rank === 1) await seen(comm.barrier());
        else comm.work(3e6);
        await Promise.resolve();
        comm.abort("enough");
      },
      /^3 fail rank=1 comm=world call=0 error=ERR_COMM_ABORTED barrier$/,
    ],
    [
      "in a hook",
      (comm) => {
        comm.hooks.after(() => {
          throw new TypeError("too late");
        });
        return seen(comm.barrier());
      },
      /^1 fail rank=[01] comm=world call=0 error=TypeError barrier dissemination$/,
    ],
    [
      "as a receive",
      (comm) =>
        comm.rank === 0
          ? undefined
          : seen(comm.recv({ recv: new Int8Array(3), peer: 0, timeoutMs: 4 })),
      /^4 fail rank=1 comm=world call=0 error=ERR_COMM_TIMEOUT recv int8\[3\]$/,
    ],
  ])("%s shows its cause", async (_, program, line) => {
    const trace = await traced(2, program);
    expect(ends(trace)).not.toEqual([]);
    for (const end of ends(trace)) expect(end).toMatch(line);
  });

  test("as an unfinished message ends at its deadline", async () => {
    const trace = await traced(2, (comm) => {
      const peer = 1 - comm.rank;
      return seen(
        comm.rank === 0
          ? comm.send({ send: new Int8Array(1), peer })
          : comm.recv({ recv: new Int8Array(1), peer, timeoutMs: 0.5 }),
      );
    });
    expect(ends(trace)).toEqual([
      "0.5 fail rank=1 comm=world call=0 error=ERR_COMM_TIMEOUT recv int8[1]",
    ]);
    expect(trace.messages()).toHaveLength(1);
    const name = "recv int8[1] ERR_COMM_TIMEOUT";
    expect(calls(trace, 1)).toEqual([[name, 0, 0.5, "ERR_COMM_TIMEOUT", "terrible"]]);
    const spans = trace.spans().map((span) => [span.name, span.endPs / msPs, span.call?.failed]);
    expect(spans).toEqual([
      ["send", expect.closeTo(0, 6), false],
      ["recv", 0.5, true],
    ]);
  });

  test("as a replay is done as far as its calls were, and shows no later ones", async () => {
    const trace = await traced(2, async (comm) => {
      const graph = await comm.capture(() => {
        for (let call = 0; call < 4; call++) void comm.barrier();
      });
      await graph.replay();
      await seen(graph.replay({ timeoutMs: 1.5 }));
    });
    for (const rank of [0, 1]) {
      const shown = calls(trace, rank);
      expect(shown.slice(0, 5)).toEqual([
        ...[0, 1, 2, 3].map((at) => ["barrier", at, at + 1, undefined, undefined]),
        ["barrier", 4, 5, undefined, undefined],
      ]);
      const [name, ...span] = shown[5] as unknown[];
      expect(name).toMatch(/^barrier ERR_COMM_/);
      expect(span.slice(0, 2)).toEqual([5, 5.5]);
      expect(shown).toHaveLength(6);
    }
  });

  test("is not shown where it was never posted", async () => {
    const trace = await traced(
      1,
      async (comm) => {
        await seen(comm.allReduce({ send: new Int8Array(1), op: "plus" as never }));
        await seen(comm.barrier());
        comm.hooks.before(() => {
          throw new Error("not this one");
        });
        await seen(comm.barrier());
        const sub = await comm.split({ color: 0 }).catch(() => undefined);
        expect(sub).toBeUndefined();
      },
      { faults: [failAt(0, 0)] },
    );
    expect(ends(trace)).toEqual([]);
  });

  test("is shown though the trace has dropped earlier events", async () => {
    const trace = new Trace();
    const world = await createWorld({ backend: sim({ trace, link }), size: 1 });
    await world.run(async (comm) => {
      comm.hooks.after(() => {
        trace.clear();
        throw new Error("too late");
      });
      await seen(comm.barrier());
    });
    await world.close();
    expect(ends(trace)).toEqual([expect.stringMatching(/fail rank=0 .* error=Error barrier$/)]);
  });

  test("is drawn in another color than a completed one", async () => {
    const trace = await traced(2, (comm) =>
      seen(comm.rank === 0 ? comm.barrier({ timeoutMs: 0.25 }) : comm.barrier()),
    );
    const svg = trace.toSvg();
    expect(svg.match(/<rect class="calls failed"/g)).toHaveLength(1);
    expect(svg.match(/<rect class="calls"/g)).toHaveLength(1);
    expect(svg).toContain("<title>barrier ERR_COMM_TIMEOUT: 0 to 250 µs</title>");
  });
});
