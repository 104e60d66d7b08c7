/** `callSites`: the program line of a call that fails, or that others wait for. */
import {
  CollectiveMismatchError,
  type CommError,
  type Communicator,
  createWorld,
  DeadlockError,
  InvalidArgumentError,
  type World,
  WorldError,
} from "twinccl";
import { sim } from "twinccl/sim";
import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";

const here = /call-sites\.test\.ts:\d+:\d+/;

async function open(size: number, callSites: boolean | undefined): Promise<World> {
  const world = await createWorld({
    backend: sim(),
    size,
    ...(callSites !== undefined && { callSites }),
  });
  onTestFinished(() => world.close());
  return world;
}

/** The failure of a program on each rank. */
async function failuresOf(
  world: World,
  program: (comm: Communicator) => Promise<unknown>,
): Promise<CommError[]> {
  const failed = await world.run(program).then(
    () => undefined,
    (error: WorldError) => error,
  );
  expect(failed).toBeInstanceOf(WorldError);
  const failures = [...(failed as WorldError).failures].sort((a, b) => a.rank - b.rank);
  return failures.map(({ error }) => error as CommError);
}

/** The frames of an error's stack. */
function framesOf({ stack = "", message }: Error): string[] {
  return stack.slice(stack.indexOf(message) + message.length + 1).split("\n");
}

function lineIn(text: string | undefined): number {
  return Number(/call-sites\.test\.ts:(\d+):/.exec(text ?? "")?.[1]);
}

/** The line that it is called at. */
function ownLine(): number {
  return lineIn(new Error().stack?.split("\n")[2]);
}

let firstLine = 0;
let secondLine = 0;

async function first(comm: Communicator): Promise<void> {
  firstLine = ownLine() + 1;
  await comm.barrier();
}

async function second(comm: Communicator): Promise<void> {
  secondLine = ownLine() + 1;
  await comm.barrier();
}

test("a mismatch names each rank's line, and has the stack of the call", async () => {
  const world = await open(2, true);
  const lines = [0, 0];
  const errors = await failuresOf(world, async (comm) => {
    const send = comm.alloc("int32", 4 + comm.rank);
    if (comm.rank === 0) {
      lines[0] = ownLine() + 1;
      await comm.allReduce({ send, op: "sum" });
    } else {
      lines[1] = ownLine() + 1;
      await comm.allReduce({ send, op: "sum" });
    }
  });
  for (const [rank, error] of errors.entries()) {
    expect(error).toBeInstanceOf(CollectiveMismatchError);
    const [heading = "", ...rows] = error.message.split("\n").slice(1, 4);
    expect(heading).toMatch(/ {2}made at$/);
    expect(rows.map(lineIn)).toEqual(lines);
    expect(lineIn(framesOf(error)[0])).toBe(lines[rank]);
  }
});

test("a deadlock names each rank's line, in its table and in its facts", async () => {
  const world = await open(3, true);
  const errors = await failuresOf(world, async (comm) => {
    if (comm.rank === 0) await first(comm);
    if (comm.rank === 1) await comm.recv({ peer: 0, recv: comm.alloc("int32", 1) });
  });
  const [error] = errors as [DeadlockError];
  expect(error).toBeInstanceOf(DeadlockError);
  expect(error.waits.map(({ place }) => place)).toEqual([
    expect.stringMatching(here),
    expect.stringMatching(here),
    undefined,
  ]);
  expect(lineIn(error.waits[0]?.place)).toBe(firstLine);
  expect(error.message).toContain(`for ranks 1, 2  ${error.waits[0]?.place}`);
});

test("the stack includes the caller of the calling function", async () => {
  const world = await open(2, true);
  let caller = 0;
  const [error] = await failuresOf(world, async (comm) => {
    await comm.barrier();
    if (comm.rank === 1) return;
    caller = ownLine() + 1;
    await first(comm);
  });
  expect(framesOf(error as Error).map(lineIn)).toEqual(expect.arrayContaining([firstLine, caller]));
  expect(framesOf(error as Error).filter((frame) => frame.includes("/src/"))).toEqual([]);
});

test("repeated calls are distinguished by their lines", async () => {
  const world = await open(2, true);
  const [error] = await failuresOf(world, async (comm) => {
    for (let round = 0; round < 20; round++) await first(comm);
    if (comm.rank === 0) await second(comm);
  });
  expect(lineIn(framesOf(error as Error)[0])).toBe(secondLine);
});

test("a refused call has the stack of its caller", async () => {
  const world = await open(1, true);
  let line = 0;
  const [error] = await failuresOf(world, async (comm) => {
    line = ownLine() + 1;
    await comm.broadcast({ recv: comm.alloc("int32", 1), root: 7 });
  });
  expect(error).toBeInstanceOf(InvalidArgumentError);
  expect(lineIn(framesOf(error as Error)[0])).toBe(line);
});

test("hooks receive the call site, also for each call of a group", async () => {
  const world = await open(2, true);
  const places: (string | undefined)[] = [];
  let line = 0;
  await world.run(async (comm) => {
    if (comm.rank === 0) comm.hooks.before(({ place }) => places.push(place));
    await first(comm);
    line = ownLine() + 1;
    await comm.group(() => void comm.barrier());
  });
  expect(places.map(lineIn)).toEqual([firstLine, line]);
});

test("a failed run names the line where a built-in function threw", async () => {
  const world = await open(1, undefined);
  let line = 0;
  const run = world.run(() => {
    line = ownLine() + 1;
    return JSON.parse("{");
  });
  const failure = (await run.catch((error: unknown) => error)) as WorldError;
  expect(lineIn(failure.message)).toBe(line);
});

describe("with a short Error.stackTraceLimit", () => {
  const { stackTraceLimit } = Error;
  afterEach(() => {
    Error.stackTraceLimit = stackTraceLimit;
  });

  test.each([1, 2])("%i: the error of a run has the stack of its caller", async (limit) => {
    const world = await open(2, true);
    Error.stackTraceLimit = limit;
    const run = world.run(() => Promise.reject("nothing"));
    const failure = (await run.catch((error: unknown) => error)) as WorldError;
    expect(framesOf(failure)[0]).toMatch(here);
  });

  test("0 while the library is loaded: calls have the lines of the program", async () => {
    vi.resetModules();
    Error.stackTraceLimit = 0;
    const [{ createWorld: openFresh }, { sim: freshSim }] = await Promise.all([
      import("twinccl"),
      import("twinccl/sim"),
    ]);
    const world = await openFresh({ backend: freshSim(), size: 1, callSites: true });
    onTestFinished(() => world.close());
    const [place] = await world.run(async (comm) => comm.barrier().place);
    expect(place).toMatch(here);
  });
});

describe("off", () => {
  test.each([undefined, false])("%s: no call site is recorded or reported", async (callSites) => {
    const world = await open(2, callSites);
    const [error] = (await failuresOf(world, async (comm) => {
      if (comm.rank === 0) await first(comm);
    })) as [DeadlockError];
    expect(error.waits.map(({ place }) => place)).toEqual([undefined, undefined]);
    expect(error.message).not.toMatch(here);
    expect(framesOf(error)[0]).toMatch(/\/(src|dist)\/api\//);
  });
});

test("a value that is neither true nor false is refused", async () => {
  await expect(
    createWorld({ backend: sim(), size: 1, callSites: "yes" as never }),
  ).rejects.toMatchObject({ code: "ERR_COMM_ARG", field: "callSites" });
});
