/** Wrong arguments of the kit's functions: refused by field, before anything runs. */
import fc from "fast-check";
import { createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import {
  checkProperty,
  communicatorsOf,
  expectSame,
  gatherRun,
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

const [program] = fc.sample(programs({ sizes: fc.constant(2) }), 1) as [Program];
const run: ProgramRun = await runProgram(sim(), program);
const world = await createWorld({ backend: sim(), size: 3 });
afterAll(() => world.close());

const none = undefined as Wrong;
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
  ["gatherRun", "label", () => gatherRun(program, [[], []], none)],
  ["runOn", "backends", () => runOn(none, program)],
  ["runOn", "backends.a", () => runOn({ a: 1 as Wrong }, program)],
  ["runOn", "program", () => runOn({}, none)],
  ["expectSame", "a", () => expectSame(none, run)],
  ["expectSame", "b", () => expectSame(run, {} as Wrong)],
  ["communicatorsOf", "program", () => communicatorsOf(none)],
  ["runLifeCycle", "backend", () => runLifeCycle(none, [])],
  ["runLifeCycle", "commands", () => runLifeCycle(sim(), none)],
  ["checkProperty", "cases", () => checkProperty(none, () => undefined)],
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
