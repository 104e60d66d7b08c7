/** Wrong arguments of the kit's functions: refused by field, before anything runs. */
import fc from "fast-check";
import { createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import {
  checkProperty,
  communicatorsOf,
  environmentReplay,
  expectSame,
  gatherRun,
  judgeRun,
  type Program,
  type ProgramRun,
  programs,
  replayLine,
  runLifeCycle,
  runOn,
  runProgram,
  runProgramAs,
  runProgramIn,
} from "twinccl/testing";
import { afterAll, expect, test } from "vitest";

// biome-ignore lint/suspicious/noExplicitAny: wrong types are the point
type Wrong = any;

const oneSum = programs({
  sizes: fc.constant(2),
  kinds: ["allReduce"],
  steps: ["call"],
  maxSteps: 1,
  maxSplits: 0,
});
const [program] = fc.sample(oneSum, 1) as [Program];
const run: ProgramRun = await runProgram(sim(), program);
const world = await createWorld({ backend: sim(), size: 3 });
afterAll(() => world.close());

const none = undefined as Wrong;
const [first] = run.outcomes;
const byRank = [0, 1].map((rank) => run.outcomes.map(({ ranks }) => ranks[rank]));
const runOf = (outcome: object): Wrong => ({ ...run, outcomes: [{ ...first, ...outcome }] });
const wrong: [string, string, () => unknown][] = [
  ["runProgram", "backend", () => runProgram(none, program)],
  ["runProgram", "program", () => runProgram(sim(), none)],
  ["runProgram", "program", () => runProgram(sim(), { size: 2 } as Wrong)],
  ["runProgramIn", "world", () => runProgramIn(none, program)],
  ["runProgramIn", "program", () => runProgramIn(world, none)],
  ["runProgramIn", "program", () => runProgramIn(world, program)],
  ["runProgramIn", "pace", () => runProgramIn(world, program, { pace: 1 as Wrong })],
  ["runProgramAs", "comm", () => runProgramAs(none, program)],
  ["runProgramAs", "program", () => world.run((comm) => runProgramAs(comm, program))],
  ["gatherRun", "program", () => gatherRun(none, [], "a")],
  ["gatherRun", "byRank", () => gatherRun(program, [3] as Wrong, "a")],
  ["gatherRun", "byRank", () => gatherRun(program, [], "a")],
  ["gatherRun", "byRank[1]", () => gatherRun(program, [byRank[0]!, []], "a")],
  ["gatherRun", "byRank[1][0]", () => gatherRun(program, [byRank[0]!, [3 as Wrong]], "a")],
  ["gatherRun", "byRank[0][0]", () => gatherRun(program, [[none], byRank[1]!], "a")],
  ["gatherRun", "label", () => gatherRun(program, [[], []], none)],
  ["runOn", "backends", () => runOn(none, program)],
  ["runOn", "backends.a", () => runOn({ a: 1 as Wrong }, program)],
  ["runOn", "program", () => runOn({}, none)],
  ["expectSame", "a", () => expectSame(none, run)],
  ["expectSame", "b", () => expectSame(run, {} as Wrong)],
  ["expectSame", "a.outcomes[0]", () => expectSame({ ...run, outcomes: [1] as Wrong }, run)],
  ["expectSame", "b.outcomes[0].call", () => expectSame(run, runOf({ call: none }))],
  ["expectSame", "b.outcomes[0].ranks[1]", () => expectSame(run, runOf({ ranks: [none, {}] }))],
  ["communicatorsOf", "program", () => communicatorsOf(none)],
  ["communicatorsOf", "program.size", () => communicatorsOf({ size: 2 ** 33, splits: [] })],
  [
    "communicatorsOf",
    "program.splits[0]",
    () => communicatorsOf({ size: 2, splits: [3 as Wrong] }),
  ],
  ["programs", "sizes", () => fc.sample(programs({ sizes: fc.constant(0) }), 1)],
  ["runLifeCycle", "backend", () => runLifeCycle(none, [])],
  ["runLifeCycle", "commands", () => runLifeCycle(sim(), none)],
  ["runLifeCycle", "commands", () => runLifeCycle(sim(), [1] as Wrong)],
  ["checkProperty", "cases", () => checkProperty(none, () => undefined)],
  ["judgeRun", "program", () => judgeRun(none, run)],
  ["judgeRun", "run", () => judgeRun(program, none)],
  ["judgeRun", "run.outcomes[0].ranks[0]", () => judgeRun(program, runOf({ ranks: [{}, {}] }))],
  ["judgeRun", "fold", () => judgeRun(program, run, 1 as Wrong)],
  ["judgeRun", "fold", () => judgeRun(program, run, (() => none) as Wrong)],
  ["environmentReplay", "seed", () => environmentReplay(0.5)],
  ["replayLine", "options", () => replayLine(none, "npm test")],
  ["replayLine", "seed", () => replayLine({} as Wrong, "npm test")],
  ["replayLine", "command", () => replayLine({ seed: 1, path: none, commands: none }, none)],
];

test.each(wrong)("%s refuses a wrong %s", async (name, field, call) => {
  const thrown: Wrong = await (async () => call())().catch((error) => error);
  const error = thrown.code === "ERR_COMM_WORLD" ? thrown.cause : thrown;
  expect(error).toMatchObject({ code: "ERR_COMM_ARG", field });
  expect(error.message).toContain(`${name}: ${field}: found `);
});

/** A program with one step of one call, as a regression test keeps it. */
function programWith(change: object, step: object = {}, whole: object = {}): Program {
  const placement = { form: "apart", lead: 0, tail: 0, host: false };
  const data = { dtype: "float32", payload: "exact", seed: 1, placement };
  const call = { ...data, kind: "allReduce", op: "sum", count: 8, ...change };
  const steps = [{ kind: "call", comm: 0, call, ...step }];
  return { size: 2, issue: "each", splits: [], steps, ...whole } as Program;
}

const placed = (change: object): object => ({
  placement: { form: "apart", lead: 0, tail: 0, host: false, ...change },
});
const split = { parent: 0, colors: [0, 1], reversed: false };

test.each<[field: string, wrong: Program]>([
  ["size", programWith({}, {}, { size: 0 })],
  ["issue", programWith({}, {}, { issue: "at once" })],
  ["splits[0].parent", programWith({}, {}, { splits: [{ ...split, parent: 1 }] })],
  ["splits[0].colors", programWith({}, {}, { splits: [{ ...split, colors: [0] }] })],
  ["splits[1].colors", programWith({}, {}, { splits: [split, { ...split, colors: ["a", 0] }] })],
  ["steps[0].kind", programWith({}, { kind: "calls" })],
  ["steps[0].comm", programWith({}, { comm: 1 })],
  ["steps[0].calls", programWith({}, { kind: "group" })],
  ["steps[0].calls[0].kind", programWith({}, { kind: "group", calls: [{}] })],
  ["steps[0].times", programWith({}, { kind: "replay", calls: [] })],
  ["steps[0].call.kind", programWith({ kind: "allreduce" })],
  ["steps[0].call.dtype", programWith({ dtype: "float" })],
  ["steps[0].call.payload", programWith({ payload: "exactly" })],
  ["steps[0].call.seed", programWith({ seed: none })],
  ["steps[0].call.count", programWith({ count: -1 })],
  ["steps[0].call.root", programWith({ kind: "reduce", root: 2 })],
  ["steps[0].call.counts", programWith({ kind: "reduceScatterv", counts: [1] })],
  ["steps[0].call.counts", programWith({ kind: "allToAllv", counts: [[1, 2], [3]] })],
  ["steps[0].call.order", programWith({ kind: "allGatherv", counts: [1, 2], order: "even" })],
  ["steps[0].call.to", programWith({ kind: "sendRecv", to: [1, 2] })],
  ["steps[0].call.from", programWith({ kind: "pair", from: 2, to: 0 })],
  ["steps[0].call.cuont", programWith({ cuont: 9 })],
  ["steps[0].call.root", programWith({ root: 1 })],
  ["steps[0].call.scalars", programWith({ op: { preMul: 2 }, scalars: [1] })],
  ["steps[0].call.op", programWith({ op: "sum", scalars: [1, 2] })],
  ["steps[0].calls", programWith({}, { calls: [] })],
  ["seed", programWith({}, {}, { seed: 3 })],
  ["splits[0].reversed", programWith({}, {}, { splits: [{ ...split, reversed: "no" }] })],
  ["splits[0].key", programWith({}, {}, { splits: [{ ...split, key: 1 }] })],
  ["steps[0].call.placement.at", programWith(placed({ at: 1 }))],
  ["steps[0].call.placement", programWith({ placement: none })],
  ["steps[0].call.placement.form", programWith(placed({ form: "inplace" }))],
  ["steps[0].call.placement.lead", programWith(placed({ lead: -1 }))],
  ["steps[0].call.placement.host", programWith(placed({ host: "no" }))],
])("a program with a wrong %s is refused, case %#", async (field, wrongProgram) => {
  const error: Wrong = await runProgram(sim(), wrongProgram).catch((thrown) => thrown);
  expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: `program.${field}` });
});
