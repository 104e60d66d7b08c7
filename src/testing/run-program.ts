/** Runs programs on backends and returns raw bytes; it computes no expectation. */
import {
  type Backend,
  type Communicator,
  createWorld,
  type World,
  type WorldOptions,
} from "../api/index.ts";
import { assertOptions, invalid, type OptionKinds, textOf } from "../api/option-kinds.ts";
import { assertBackend } from "../api/world/create-world.ts";
import { assertMembers, assertOutcome } from "./argument-checks.ts";
import { CallExecution, type RankOutcome } from "./call-execution.ts";
import {
  communicatorsOf,
  type Occurrence,
  occurrencesOf,
  type Program,
  type ProgramStep,
} from "./program.ts";
import { assertProgram } from "./program-checks.ts";

/** One execution of one call, and the data of every rank of the world after it. */
export interface CallOutcome extends Occurrence {
  /** By world rank; `undefined` for ranks that are no members of the communicator. */
  readonly ranks: readonly (RankOutcome | undefined)[];
}

/** The results of a program on one backend. */
export interface ProgramRun {
  /** The label given to `runOn`, or the backend's own name. */
  readonly backend: string;
  /** In program order. */
  readonly outcomes: readonly CallOutcome[];
}

/** Options of a run; `onStall` and `stallMs` are the world's. */
export interface RunOptions extends Pick<WorldOptions, "onStall" | "stallMs"> {
  /** Name of the run in comparisons; the backend's own when left out. */
  readonly label?: string | undefined;
  /**
   * Work of a rank of the world before a step, beside making calls: sleep, compute, wait for input. Nothing when left out. A
   * healthy program is not affected.
   */
  readonly pace?: ((rank: number, step: number) => PromiseLike<unknown> | undefined) | undefined;
}

const kinds: OptionKinds<RunOptions> = {
  label: "string",
  pace: "function",
  onStall: "function",
  stallMs: true,
};

/**
 * Runs a program in a world of its own and checks that no byte outside of receive buffers was written.
 *
 * @throws WorldError when any call fails: programs are healthy, so that is a bug.
 * @example
 * const { outcomes } = await runProgram(sim(), program);
 * @example
 * const pace = (rank) => (rank === 1 ? new Promise((resolve) => setTimeout(resolve, 2)) : undefined);
 * await runProgram(sim(), program, { pace });
 */
export async function runProgram(
  backend: Backend,
  program: Program,
  options: RunOptions = {},
): Promise<ProgramRun> {
  assertBackend("runProgram", backend);
  assertProgram("runProgram", program);
  assertOptions("runProgram", options, kinds);
  const { label = backend.name, pace, ...stalls } = options;
  const world = await createWorld({ backend, size: program.size, ...stalls });
  try {
    return await runProgramIn(world, program, { label, pace });
  } finally {
    await world.close();
  }
}

/**
 * Runs a program in a world that is open already, for backends with worlds that take long to open. Its communicators and
 * buffers are released afterwards; the world can run the next program.
 *
 * @throws WorldError when any call fails; the world is best closed then. InvalidArgumentError for a program of another size.
 * @example
 * const world = await createWorld({ backend: nccl(), size: 4 });
 * for (const program of fc.sample(programs({ sizes: fc.constant(4) }), 20)) await runProgramIn(world, program);
 */
export async function runProgramIn(
  world: World,
  program: Program,
  options: Pick<RunOptions, "label" | "pace"> = {},
): Promise<ProgramRun> {
  const members = { size: "number", run: "function", backend: "string" } as const;
  assertMembers("runProgramIn", "world", world, members, "a world of createWorld");
  assertOptions("runProgramIn", options, { label: "string", pace: "function" });
  assertFits("runProgramIn", program, world.size);
  const { label = world.backend, pace } = options;
  const byRank = await world.run((comm) => runProgramAs(comm, program, { pace }));
  return gatherRun(program, byRank, label);
}

/**
 * Runs one rank's part of a program, in a job with one process per rank, all with the same program. Its communicators and
 * buffers are released afterwards; the given communicator can run the next program.
 *
 * @returns The rank's data after each call, in program order; `undefined` for calls of others.
 * @throws CommError when a call fails; the communicator is best closed then. InvalidArgumentError for a program of another size.
 * @example
 * const comm = await connect({ backend: nccl() });
 * const drawn = programs({ sizes: fc.constant(comm.size) });
 * for (const program of fc.sample(drawn, { seed: 7, numRuns: 20 })) await runProgramAs(comm, program);
 */
export async function runProgramAs(
  comm: Communicator,
  program: Program,
  options: Pick<RunOptions, "pace"> = {},
): Promise<readonly (RankOutcome | undefined)[]> {
  const members = { size: "number", rank: "number", alloc: "function" } as const;
  assertMembers("runProgramAs", "comm", comm, members, "a communicator");
  assertFits("runProgramAs", program, comm.size);
  assertOptions("runProgramAs", options, { pace: "function" });
  return runRank(comm, program, options.pace);
}

/** Needs a program of as many ranks. */
function assertFits(subject: string, program: Program, size: number): void {
  assertProgram(subject, program);
  if (program.size === size) return;
  throw invalid(subject, "program", `a program of ${program.size} ranks`, `one of ${size}`);
}

/** The results of `runProgramAs` of each rank of a program, as one run that can be compared with others. */
export function gatherRun(
  program: Program,
  byRank: readonly (readonly (RankOutcome | undefined)[])[],
  label: string,
): ProgramRun {
  assertProgram("gatherRun", program);
  if (!Array.isArray(byRank) || !byRank.every((each) => Array.isArray(each))) {
    throw invalid("gatherRun", "byRank", textOf(byRank), "what runProgramAs gave on each rank");
  }
  if (typeof label !== "string") throw invalid("gatherRun", "label", textOf(label), "a name");
  const occurrences = occurrencesOf(program);
  assertGathered(program, occurrences, byRank);
  const outcomes = occurrences.map((occurrence, at) => ({
    ...occurrence,
    ranks: byRank.map((rank) => rank[at]),
  }));
  return { backend: label, outcomes };
}

/** Needs the data of every rank after each of its calls: two runs of nothing would be the same. */
function assertGathered(
  program: Program,
  occurrences: readonly Occurrence[],
  byRank: readonly (readonly unknown[])[],
): void {
  const comms = communicatorsOf(program);
  if (byRank.length !== program.size) {
    throw invalid("gatherRun", "byRank", `${byRank.length} ranks`, `${program.size}`);
  }
  for (const [rank, outcomes] of byRank.entries()) {
    if (outcomes.length !== occurrences.length) {
      const [found, needed] = [`${outcomes.length} calls`, `${occurrences.length}`];
      throw invalid("gatherRun", `byRank[${rank}]`, found, needed);
    }
    for (const [at, { comm }] of occurrences.entries()) {
      const field = `byRank[${rank}][${at}]`;
      if (comms[comm]?.includes(rank)) assertOutcome("gatherRun", field, outcomes[at]);
      else if (outcomes[at] !== undefined) {
        throw invalid("gatherRun", field, textOf(outcomes[at]), "undefined for a call of others");
      }
    }
  }
}

/**
 * Runs a program on several backends, one after the other.
 *
 * @example
 * const [a, b] = await runOn({ ring: sim(), nccl: nccl() }, program);
 */
export async function runOn(
  backends: Readonly<Record<string, Backend>>,
  program: Program,
): Promise<ProgramRun[]> {
  assertMembers("runOn", "backends", backends, {}, "backends by name");
  for (const [label, backend] of Object.entries(backends)) {
    assertBackend("runOn", backend, `backends.${label}`);
  }
  assertProgram("runOn", program);
  const runs: ProgramRun[] = [];
  for (const [label, backend] of Object.entries(backends)) {
    runs.push(await runProgram(backend, program, { label }));
  }
  return runs;
}

/** One rank's part; its outcomes have the indexes of `occurrencesOf`. */
async function runRank(
  world: Communicator,
  program: Program,
  pace: RunOptions["pace"],
): Promise<(RankOutcome | undefined)[]> {
  const comms = await openCommunicators(world, program);
  const outcomes: (RankOutcome | undefined)[] = [];
  const open: Promise<void>[] = [];
  let at = 0;
  for (const [number, step] of program.steps.entries()) {
    if (pace !== undefined) await pace(world.rank, number);
    const comm = comms[step.comm];
    const rounds = step.kind === "replay" ? step.times : 1;
    const calls = step.kind === "call" ? 1 : step.calls.length;
    const first = at;
    at += rounds * calls;
    for (let i = first; i < at; i++) outcomes.push(undefined);
    if (comm === undefined) continue;
    const keep = (place: number, outcome: RankOutcome): void => {
      outcomes[first + place] = outcome;
    };
    // Replays are posted between awaits, so that all earlier calls must have completed on every rank.
    if (step.kind === "replay") await Promise.all(open.splice(0));
    const done = runStep(comm, step, keep);
    if (program.issue === "each" || step.kind === "replay") await done;
    else open.push(done);
  }
  await Promise.all(open);
  // Closes the communicators of splits, last one first; the owner closes the world.
  for (const comm of comms.slice(1).reverse()) await comm?.close();
  return outcomes;
}

async function runStep(
  comm: Communicator,
  step: ProgramStep,
  keep: (place: number, outcome: RankOutcome) => void,
): Promise<void> {
  if (step.kind === "call") {
    const execution = new CallExecution(comm, step.call);
    await execution.post();
    keep(0, await execution.outcome());
    execution.dispose();
    return;
  }
  const executions = step.calls.map((call) => new CallExecution(comm, call));
  const keepAll = async (round: number): Promise<void> => {
    for (const [part, execution] of executions.entries()) {
      keep(round * executions.length + part, await execution.outcome());
    }
  };
  if (step.kind === "group") {
    await comm.group(() => {
      for (const execution of executions) void execution.post();
    });
    await keepAll(0);
    for (const execution of executions) execution.dispose();
    return;
  }
  const graph = await comm.capture(() => {
    for (const execution of executions) void execution.record();
  });
  for (let round = 0; round < step.times; round++) {
    for (const execution of executions) execution.refill(round);
    await graph.replay();
    await keepAll(round);
  }
  for (const execution of executions) execution.dispose();
}

/** The program's communicators that this rank is a member of, by number. */
async function openCommunicators(
  world: Communicator,
  program: Program,
): Promise<(Communicator | undefined)[]> {
  const planned = communicatorsOf(program);
  const comms: (Communicator | undefined)[] = [world];
  for (const { parent, colors, reversed } of program.splits) {
    const sorted = [...new Set(colors.filter((color) => color !== null))].sort((a, b) => a - b);
    const base = comms.length;
    for (const _ of sorted) comms.push(undefined);
    const comm = comms[parent];
    if (comm === undefined) continue;
    const color = colors[comm.rank] ?? undefined;
    const child = await comm.split({ color, ...(reversed ? { key: -comm.rank } : {}) });
    if (color === undefined || child === undefined) continue;
    const number = base + sorted.indexOf(color);
    comms[number] = child;
    const rank = planned[number]?.indexOf(world.rank);
    if (child.rank !== rank || child.size !== planned[number]?.length) {
      throw new Error(
        `split: world rank ${world.rank} is ${child.rank} of ${child.size}, planned ${rank} of ${planned[number]?.length}`,
      );
    }
  }
  return comms;
}
