/** Errors: their text is one headline, an aligned table and one hint; their facts survive as plain data. */

import { inspect } from "node:util";
import * as api from "twinccl";
import { CudaError, NcclError } from "twinccl/nccl";
import * as parallel from "twinccl/parallel";
import { sim } from "twinccl/sim";
import { WebgpuError } from "twinccl/webgpu";
import { describe, expect, test } from "vitest";
import { alignedTable, errorMessage, ranksText } from "../../../src/api/error-text.ts";

const {
  BackendUnavailableError,
  CollectiveMismatchError,
  CommAbortedError,
  CommClosedError,
  CommError,
  CommTimeoutError,
  createWorld,
  DeadlockError,
  InvalidArgumentError,
  RankLostError,
  RemoteRankError,
  RendezvousError,
  UnsupportedError,
  WorldError,
} = api;

const text = {
  headline: "did not work",
  table: [
    ["rank", 10],
    ["long cell", 2],
  ],
  hint: "do it",
};

describe("the text", () => {
  test("consists of headline, table and hint", () => {
    expect(errorMessage(text)).toBe(
      ["did not work", "  rank       10", "  long cell  2", "hint: do it"].join("\n"),
    );
    expect(errorMessage({ headline: "alone" })).toBe("alone");
  });

  test("pads columns, not line ends, and takes rows of different lengths", () => {
    expect(alignedTable([["a", "bb", ""], ["ccc"], ["d", 1n, "e"]])).toEqual([
      "a    bb",
      "ccc",
      "d    1   e",
    ]);
  });

  test("abbreviates lists of ranks", () => {
    expect([[], [3], [0, 1], [0, 2, 5], [4, 5, 6, 7], [1, 0]].map(ranksText)).toEqual([
      "no rank",
      "rank 3",
      "ranks 0, 1",
      "ranks 0, 2, 5",
      "ranks 4..7",
      "ranks 1, 0",
    ]);
    expect(ranksText([0, 1, 2, 4, 6, 7, 9, 10, 11])).toBe("ranks 0..2, 4, 6, 7, 9..11");
    const even = Array.from({ length: 1024 }, (_, half) => 2 * half);
    expect(ranksText(even)).toBe(`ranks ${even.slice(0, 32).join(", ")} and 992 more`);
    expect(ranksText(even.slice(0, 32))).toBe(`ranks ${even.slice(0, 32).join(", ")}`);
  });
});

describe("the classes", () => {
  const facts = {
    rank: 1,
    size: 4,
    comm: "job",
    collective: "allReduce",
    call: 7,
    device: "sim:1",
    ranks: [2],
    field: "op",
  };
  const all = [
    [new InvalidArgumentError(text, facts), "ERR_COMM_ARG"],
    [new UnsupportedError(text, facts), "ERR_COMM_UNSUPPORTED"],
    [new BackendUnavailableError(text, facts), "ERR_COMM_BACKEND"],
    [new RendezvousError(text, { ...facts, address: "127.0.0.1:1" }), "ERR_COMM_RENDEZVOUS"],
    [new CollectiveMismatchError(text, { ...facts, values: ["1"] }), "ERR_COMM_MISMATCH"],
    [new DeadlockError(text, { ...facts, waits: [] }), "ERR_COMM_DEADLOCK"],
    [new CommTimeoutError(text, facts), "ERR_COMM_TIMEOUT"],
    [new RemoteRankError(text, facts), "ERR_COMM_REMOTE"],
    [new RankLostError(text, facts), "ERR_COMM_LOST"],
    [new CommAbortedError(text, facts), "ERR_COMM_ABORTED"],
    [new CommClosedError(text, facts), "ERR_COMM_CLOSED"],
    [new WorldError(text, { ...facts, failures: [] }), "ERR_COMM_WORLD"],
  ] as const;

  test.each(all)("%s has its code, name, facts and hint", (error, code) => {
    expect(error).toBeInstanceOf(CommError);
    expect(error).toBeInstanceOf(Error);
    expect(error).toMatchObject({ ...facts, code, hint: "do it" });
    expect(error.name).toBe(error.constructor.name);
    expect(String(error)).toBe(`${error.name}: ${error.message}`);
  });

  const classes = Object.entries({ ...api, ...parallel }).filter(
    ([name]) => name.endsWith("Error") && name !== "CommError",
  ) as unknown as [string, new (text?: string, facts?: object) => api.CommError][];

  test.each(classes)("%s is made of a plain text too, and of none", (name, Kind) => {
    expect(new Kind("did not\u001b work")).toMatchObject({
      ...{ name, message: "did not\\u001b work", hint: undefined, ranks: [] },
    });
    expect(new Kind().message).toBe("");
    expect(new Kind(null as never).message).toBe("null");
    expect(JSON.parse(JSON.stringify(new Kind("text")))).toMatchObject({ name, message: "text" });
    const placed = new Kind("text", { rank: 1 });
    expect(JSON.parse(JSON.stringify(placed))).toMatchObject({ name, message: "text", rank: 1 });
    const own = Object.getOwnPropertyNames(placed).filter(
      (each) => !["hint", "file"].includes(each),
    );
    expect(own.filter((each) => Reflect.get(placed, each) === undefined)).toEqual([]);
  });

  test.each([NcclError, CudaError])("of a native call need one: %s", (Kind) => {
    const Made = Kind as new (failure?: unknown) => api.CommError;
    const right = { cCall: "f", status: 1, statusName: "s", detail: "" };
    expect(new Made(right).message).toContain("f: s (1)");
    for (const wrong of ["text", null, undefined, {}, { ...right, status: "1" }])
      expect(() => new Made(wrong)).toThrow(expect.objectContaining({ field: "failure" }));
  });

  test("of WebGPU needs a fault", () => {
    const Made = WebgpuError as new (...given: unknown[]) => api.CommError;
    for (const fault of [undefined, "toString", Object.create(null)])
      expect(() => new Made("text", fault)).toThrow(expect.objectContaining({ field: "fault" }));
    expect(new Made("a", "lost", "b").message).toContain("webgpu (a): the device was lost: b");
  });

  test("are all exported, and every exported error is one of them", () => {
    const exported = Object.entries(api).filter(([name]) => name.endsWith("Error"));
    const names = exported.map(([name]) => name);
    expect(names).toEqual(expect.arrayContaining(all.map(([{ name }]) => name)));
    for (const [name, value] of exported) {
      const isError = value === CommError || (value as object) instanceof Function;
      expect(isError && Object.getPrototypeOf(value).name, name).toMatch(/^(Comm)?Error$/);
    }
  });

  test.each([RemoteRankError, RankLostError])(
    "of a wait for another rank get the call of the rank that sees them: %s",
    (Kind) => {
      const place = { rank: 0, size: 3, comm: "world", collective: "barrier", call: 4 };
      const seen = new Kind(text, { ranks: [2], cause: "why" }).seenBy(place);
      expect(seen).toBeInstanceOf(Kind);
      expect(seen).toMatchObject({ ...place, ranks: [2], cause: "why" });
      expect(seen.seenBy({ ...place, rank: 1 })).toBe(seen);
    },
  );

  test("become plain data, with stack and causes", () => {
    const cause = new TypeError("why", { cause: 12n });
    const error = new RemoteRankError(text, { ...facts, cause });
    expect(error.cause).toBe(cause);
    expect(JSON.parse(JSON.stringify(error))).toEqual({
      ...facts,
      name: "RemoteRankError",
      code: "ERR_COMM_REMOTE",
      message: errorMessage(text),
      hint: "do it",
      stack: error.stack,
      cause: { name: "TypeError", message: "why", stack: cause.stack, cause: "12" },
    });
  });

  test("become plain data with the extra facts of each class", () => {
    const waits = [{ rank: 0, state: "waits", missing: [1] }] as const;
    const deadlock = new DeadlockError(text, { waits });
    const mismatch = new CollectiveMismatchError(text, { values: ["4", "5"] });
    const place = { address: "host:1", joined: [0], missing: [1] };
    expect(deadlock.toJSON()).toMatchObject({ waits });
    expect(mismatch.toJSON()).toMatchObject({ values: ["4", "5"] });
    expect(new RendezvousError(text, place).toJSON()).toMatchObject(place);
    const failures = [0, 1, 2].map((rank) => {
      return { rank, error: rank < 2 ? new DeadlockError(text, { waits }) : new TypeError("why") };
    });
    const data = JSON.parse(JSON.stringify(new WorldError(text, { failures, cause: deadlock })));
    expect(data).toMatchObject({ cause: { code: "ERR_COMM_DEADLOCK", waits } });
    expect(data.failures[0].error).toMatchObject({ waits, stack: expect.any(String) });
    // The same text once more: its first line, without tables and lists.
    expect(data.failures[1].error).toEqual({
      name: "DeadlockError",
      code: "ERR_COMM_DEADLOCK",
      message: errorMessage(text).split("\n")[0],
    });
    expect(data.failures[2].error).toMatchObject({ name: "TypeError", message: "why" });
  });

  test("become plain data with the facts of every other class", () => {
    const { CheckpointError, NonFiniteGradientError, UnusedParametersError } = parallel;
    const lost = new WebgpuError("adapter 1", "lost", "gone");
    expect(lost.toJSON()).toMatchObject({ adapter: "adapter 1", fault: "lost" });
    const native = { cCall: "f", status: 1, statusName: "s", detail: "d" };
    expect(new NcclError(native).toJSON()).toMatchObject(native);
    expect(new CheckpointError(text, { file: "a" }).toJSON()).toMatchObject({ file: "a" });
    for (const Kind of [NonFiniteGradientError, UnusedParametersError]) {
      expect(new Kind(text, { parameters: ["w"] }).toJSON()).toMatchObject({ parameters: ["w"] });
    }
    const orders = [{ rank: 0, calls: [] }];
    expect(new api.CallOrderError(text, { orders }).toJSON()).toMatchObject({ orders });
  });

  test("become plain data with what a program has added", () => {
    const loop: { self?: unknown } = {};
    loop.self = loop;
    const error = Object.assign(new CommAbortedError(text), { attempt: 2, loop, ended: () => 0 });
    const data = JSON.parse(JSON.stringify(error));
    expect(data).toMatchObject({ attempt: 2, loop: "object that has no JSON" });
  });

  test("become plain data with a cyclic chain of causes", () => {
    const cause = new Error("inner");
    const error = new CommAbortedError(text, { cause });
    cause.cause = error;
    expect(JSON.parse(JSON.stringify(error))).toMatchObject({
      cause: { message: "inner", cause: { code: "ERR_COMM_ABORTED", cause: "[circular]" } },
    });
  });

  test("become plain data from a copy without prototypes, as test runners create", () => {
    const error = new CommAbortedError(text, { cause: new Error("why") });
    error.cause = Object.assign(Object.create(null), { message: "why" });
    expect(error.toJSON()).toMatchObject({ cause: { message: "why" } });
  });

  test("become plain data with any cause", () => {
    const loop: { self?: unknown } = {};
    loop.self = loop;
    for (const cause of [12n, loop, Symbol("why"), () => 0, null]) {
      const error = new CommAbortedError(text, { cause });
      expect(() => JSON.stringify(error), String(typeof cause)).not.toThrow();
    }
  });
});

describe("printed", () => {
  test("with its present facts only", () => {
    const error = new InvalidArgumentError(text, { rank: 2, field: "to" });
    const printed = inspect(error);
    expect(printed.slice(printed.lastIndexOf("{"))).toBe(
      "{\n  rank: 2,\n  field: 'to',\n  code: 'ERR_COMM_ARG'\n}",
    );
    // What is not printed can be read all the same.
    expect(error).toMatchObject({ hint: "do it", ranks: [] });
    expect([error.size, error.comm, error.call]).toEqual([undefined, undefined, undefined]);
  });

  test("a failed run shows the first failure once, for any number of failed ranks", async () => {
    const world = await createWorld({ backend: sim(), size: 8 });
    const error: api.WorldError = await world
      .run(async (comm) => {
        if (comm.rank === 5) throw new TypeError("mine");
        await comm.barrier();
      })
      .catch((failure) => failure);
    await world.close();
    expect(error.failures).toHaveLength(8);
    const printed = inspect(error, { depth: 5, customInspect: false });
    expect(printed.match(/^ *(\[cause\]: )?TypeError: mine$/gm)).toHaveLength(1);
    expect(printed.match(/^ *code: /gm)).toEqual(["  code: "]);
  });
});
