/**
 * Life cycles of worlds as commands for fast-check's model runs. Commands open, run, allocate and dispose, split, close a
 * communicator, abort, rebuild and close, in any order; each checks the expected answer.
 */
import fc from "fast-check";
import {
  type Backend,
  type Communicator,
  createWorld,
  type DeviceBuffer,
  type World,
} from "../api/index.ts";
import { assertOptions, invalid, textOf } from "../api/option-kinds.ts";
import { assertBackend } from "../api/world/create-world.ts";
import { assertMembers, assertWhole } from "./argument-checks.ts";
import { environmentReplay } from "./check-property.ts";

/** The expected state of a world. */
export interface LifeCycleModel {
  state: "none" | "open" | "aborted" | "closed";
  size: number;
  generation: number;
  /** Generation in which every rank kept a buffer; 0 without one. */
  keptIn: number;
}

/** The world under test. */
export interface LifeCycleReal {
  readonly backend: Backend;
  world: World | undefined;
  /** A buffer of each rank, kept beyond its run. */
  kept: DeviceBuffer<"int32">[];
}

/** One step of a life cycle. */
export type LifeCycleCommand = fc.AsyncCommand<LifeCycleModel, LifeCycleReal>;

/** The life cycles to draw from. */
export interface LifeCycleConstraints {
  /** Most ranks; 5 when left out. */
  readonly maxRanks?: number | undefined;
  /** Most commands after the one that opens the first world; 12 when left out. */
  readonly maxCommands?: number | undefined;
}

/**
 * Sequences of commands, for `runLifeCycle`. The first command opens a world of a drawn size, which shrinks like the rest.
 * Later commands run if the state allows them.
 *
 * @example
 * await checkProperty(lifeCycleCommands(), (commands) => runLifeCycle(sim(), commands));
 */
export function lifeCycleCommands(
  constraints: LifeCycleConstraints = {},
): fc.Arbitrary<Iterable<LifeCycleCommand>> {
  assertOptions("lifeCycleCommands", constraints, { maxRanks: true, maxCommands: true });
  const { maxRanks = 5, maxCommands = 12 } = constraints;
  assertWhole("lifeCycleCommands", "maxRanks", maxRanks, 1);
  assertWhole("lifeCycleCommands", "maxCommands", maxCommands, 0);
  const { commands: replayPath } = environmentReplay();
  const sizes = fc.integer({ min: 1, max: maxRanks });
  const kinds = [
    sizes.map(openWorld),
    fc.constant(runSum),
    fc.constant(disposeBuffer),
    fc.constant(keepBuffer),
    fc.constant(useKeptBuffer),
    fc.integer({ min: 1, max: 3 }).map(splitRanks),
    fc.constant(closeCommunicator),
    fc.boolean().map(abortWorld),
    fc.boolean().map(rebuildWorld),
    fc.constant(closeWorld),
  ];
  const later = fc.commands(kinds, {
    maxCommands,
    // Without this, fast-check would draw fewer commands.
    size: "max",
    ...(replayPath === undefined ? {} : { replayPath }),
  });
  return fc.tuple(sizes, later).map(([size, commands]) => new OpenedLifeCycle(size, commands));
}

/** Commands after one that opens a world, because most need one. Prints the executed commands. */
class OpenedLifeCycle implements Iterable<LifeCycleCommand> {
  readonly #size: number;
  readonly #later: Iterable<LifeCycleCommand>;
  #hasOpened = false;

  constructor(size: number, later: Iterable<LifeCycleCommand>) {
    this.#size = size;
    this.#later = later;
  }

  *[Symbol.iterator](): Generator<LifeCycleCommand> {
    this.#hasOpened = true;
    yield openWorld(this.#size);
    yield* this.#later;
  }

  toString(): string {
    const later = String(this.#later);
    if (!this.#hasOpened) return later;
    // fast-check's text begins with a space if no command ran but a replay path follows.
    const between = later === "" || later.startsWith(" ") ? "" : ",";
    return `open(${this.#size})${between}${later}`;
  }
}

/** Runs a life cycle on a backend; throws at the first answer that is not the expected one. */
export async function runLifeCycle(
  backend: Backend,
  commands: Iterable<LifeCycleCommand>,
): Promise<void> {
  assertBackend("runLifeCycle", backend);
  const isIterable = typeof Object(commands)[Symbol.iterator] === "function";
  if (!isIterable || typeof commands === "string") {
    const needed = "commands, as lifeCycleCommands() draws them";
    throw invalid("runLifeCycle", "commands", textOf(commands), needed);
  }
  const checked = function* (): Generator<LifeCycleCommand> {
    for (const each of commands) {
      const members = { check: "function", run: "function" } as const;
      assertMembers("runLifeCycle", "commands", each, members, "commands of lifeCycleCommands()");
      yield each;
    }
  };
  const real: LifeCycleReal = { backend, world: undefined, kept: [] };
  try {
    await fc.asyncModelRun(() => {
      const model: LifeCycleModel = { state: "none", size: 0, generation: 0, keptIn: 0 };
      return { model, real };
    }, checked());
  } finally {
    await real.world?.close();
  }
}

type Check = (model: LifeCycleModel) => boolean;
type Act = (model: LifeCycleModel, world: World, real: LifeCycleReal) => Promise<void>;

/** A command on a world that was opened before. */
function command(name: string, check: Check, act: Act): LifeCycleCommand {
  return {
    check: (model) => model.state !== "none" && check(model),
    run: async (model, real) => {
      if (real.world === undefined) throw new Error("there is no world");
      await act(model, real.world, real);
    },
    toString: () => name,
  };
}

const isOpen: Check = ({ state }) => state === "open";

function openWorld(size: number): LifeCycleCommand {
  return {
    check: ({ state }) => state === "none" || state === "closed",
    run: async (model, real) => {
      real.world = await createWorld({ backend: real.backend, size });
      Object.assign(model, { state: "open", size, generation: 1, keptIn: 0 });
      assertEqual("generation", real.world.generation, 1);
    },
    toString: () => `open(${size})`,
  };
}

/** A sum over all ranks, or the refusal of a world that is no longer open. */
const runSum = command(
  "run",
  () => true,
  async (model, world) => {
    const running = world.run(async (comm) => {
      const send = comm.alloc("int32", 2).fill(comm.rank + 1);
      await comm.allReduce({ send, op: "sum" });
      return (await send.toHost())[1];
    });
    if (model.state !== "open") {
      await expectRefused(
        running,
        model.state === "aborted" ? "ERR_COMM_ABORTED" : "ERR_COMM_CLOSED",
      );
      return;
    }
    const { size } = model;
    assertEqual("sums", await running, new Array<number>(size).fill((size * (size + 1)) / 2));
  },
);

const disposeBuffer = command("dispose", isOpen, async (_model, world) => {
  await world.run(async (comm) => {
    const send = comm.alloc("float32", 3);
    const part = send.subarray(1);
    send.dispose();
    send.dispose();
    await expectRefused(comm.allReduce({ send: part, op: "sum" }), "ERR_COMM_CLOSED");
    await expectRefused(send.toHost(), "ERR_COMM_CLOSED");
    await comm.barrier();
  });
});

const keepBuffer = command("keep", isOpen, async (model, world, real) => {
  real.kept = await world.run((comm) => comm.alloc("int32", 1).fill(1));
  model.keptIn = model.generation;
});

/** A buffer works as long as its generation, and not in any other one. */
const useKeptBuffer = command(
  "passKept",
  ({ state, keptIn }) => state === "open" && keptIn > 0,
  async (model, world, real) => {
    await world.run(async (comm) => {
      const send = real.kept[comm.rank];
      if (send === undefined) throw new Error(`rank ${comm.rank} kept nothing`);
      const op = comm.allReduce({ send, op: "max" });
      if (model.keptIn !== model.generation) return expectRefused(op, "ERR_COMM_ARG");
      await op;
      assertEqual("kept", (await send.toHost())[0], 1);
    });
  },
);

function splitRanks(colors: number): LifeCycleCommand {
  return command(`split(${colors})`, isOpen, async (_model, world) => {
    await world.run(async (comm) => {
      const child = await comm.split({ color: comm.rank % colors, key: -comm.rank });
      const send = child.alloc("int32", 1).fill(1);
      await child.allReduce({ send, op: "sum" });
      assertEqual("members", (await send.toHost())[0], child.size);
      await child.close();
      await expectRefused(child.barrier(), "ERR_COMM_CLOSED");
      await comm.barrier();
    });
  });
}

/** Closed for the rest of this run and open again in the next. */
const closeCommunicator = command("closeComm", isOpen, async (_model, world) => {
  await world.run(async (comm: Communicator) => {
    await comm.barrier();
    await comm.close();
    await comm.close();
    await expectRefused(comm.barrier(), "ERR_COMM_CLOSED");
  });
});

function abortWorld(inside: boolean): LifeCycleCommand {
  return command(inside ? "abortInside" : "abort", isOpen, async (model, world) => {
    if (inside) {
      const running = world.run(async (comm) => {
        if (comm.rank === 0) comm.abort("enough");
        await comm.barrier();
      });
      await expectRefused(running, "ERR_COMM_WORLD");
    } else world.abort("enough");
    world.abort("again");
    model.state = "aborted";
  });
}

/** Without the last rank or with all; a closed world is refused, and the old world is closed afterwards. */
function rebuildWorld(loses: boolean): LifeCycleCommand {
  return command(loses ? "rebuild(lost)" : "rebuild", always, async (model, world, real) => {
    const without = loses && model.size > 1 ? [model.size - 1] : [];
    const rebuilding = world.rebuild({ without });
    if (model.state === "closed") {
      await expectRefused(rebuilding, "ERR_COMM_CLOSED");
      return;
    }
    real.world = await rebuilding;
    await expectRefused(
      world.run(() => undefined),
      "ERR_COMM_CLOSED",
    );
    model.size -= without.length;
    model.generation += 1;
    model.state = "open";
    assertEqual("generation", real.world.generation, model.generation);
    assertEqual("size", real.world.size, model.size);
  });
}

const always: Check = () => true;

const closeWorld = command("close", always, async (model, world) => {
  await world.close();
  await world.close();
  model.state = "closed";
});

/** Needs a rejection with this code. */
async function expectRefused(outcome: PromiseLike<unknown>, code: string): Promise<void> {
  const found = await outcome.then(
    () => "nothing was refused",
    (error: unknown) => (error as { readonly code?: unknown }).code ?? error,
  );
  assertEqual("error", found, code);
}

function assertEqual(what: string, found: unknown, needed: unknown): void {
  if (String(found) === String(needed)) return;
  throw new Error(`${what}: found ${String(found)}, needed ${String(needed)}`);
}
