/** Indexes that callers give to the helpers: fractions and strangers are refused by name, never rounded. */
import {
  type Algorithm,
  buildProgram,
  catalogue,
  elementPlan,
  elementText,
  h200x8,
  input,
  ncclPlan,
  output,
  ProgramBuilder,
  pieceAt,
  scratch,
  stepAt,
  stepCount,
  verifyAlgorithm,
} from "twinccl/algorithms";
import { describe, expect, test } from "vitest";

const strangers = [0.5, -1, Number.NaN, Infinity, 2 ** 53, "1", undefined, null] as number[];

const refusal = (field: string) => expect.objectContaining({ code: "ERR_COMM_ARG", field });

const ring = buildProgram("allReduce", catalogue.allReduce.ring, 3, -1);
const plan = ncclPlan({
  version: "2.28",
  collective: "allReduce",
  topology: h200x8(4),
  dtype: "float32",
  op: "sum",
  count: 64,
});

describe.each(strangers)("%s", (index) => {
  test.each([
    ["input", input],
    ["output", output],
    ["scratch", scratch],
  ])("is refused as a chunk by %s", (_, ref) => {
    expect(() => ref(index)).toThrowError(refusal("chunk"));
  });

  test("is refused as a step of a program", () => {
    expect(() => stepAt(ring, index)).toThrowError(refusal("index"));
  });

  test.each([
    ["pieceAt", pieceAt],
    ["elementPlan", elementPlan],
    ["elementText", elementText],
  ])("is refused as an element and as a block by %s", (_, of) => {
    expect(() => of(plan, index)).toThrowError(refusal("element"));
    if (index !== undefined) expect(() => of(plan, 0, index)).toThrowError(refusal("block"));
  });

  test("is refused as a rank and as a channel by a builder", () => {
    const builder = new ProgramBuilder({ ...ring, channels: 1 });
    expect(() => builder.lane(index)).toThrowError(refusal("rank"));
    if (index !== undefined) expect(() => builder.lane(0, index)).toThrowError(refusal("channel"));
  });
});

test("is refused in a step's field that its packed form would truncate", () => {
  const { lane } = { lane: () => new ProgramBuilder(ring).lane(0) };
  expect(() => lane().send(input(0), 0.5)).toThrowError(refusal("to"));
  expect(() => lane().recv(2 ** 31, output(0))).toThrowError(refusal("from"));
  expect(() => lane().copy(0.5, output(0))).toThrowError(refusal("read"));
  expect(() => lane().reduce(input(0), Number.NaN, output(0))).toThrowError(refusal("other"));
  expect(() => lane().copy(input(0), -0.5)).toThrowError(refusal("write"));
  expect(() => lane().send(input(0), 1, { span: 1.5 })).toThrowError(refusal("span"));
});

test("is refused as a span longer than every buffer of the program, by rank and step", () => {
  const lane = new ProgramBuilder(ring).lane(1);
  lane.copy(input(0), output(0), { span: 9 });
  expect(() => lane.send(input(0), 2, { span: 10 })).toThrowError(
    "step 1 of rank 1: span: found 10, needs an integer in 0..9",
  );
  expect(() => lane.send(input(0), 2, { span: -1 })).toThrowError(refusal("span"));
  const scratched = new ProgramBuilder({ ...ring, scratchChunks: 10 }).lane(1);
  scratched.copy(scratch(0), output(0), { span: 10 });
});

test.each<[field: string, change: Partial<Algorithm>]>([
  ["chunksPerBlock", { chunksPerBlock: () => 0 }],
  ["chunksPerBlock", { chunksPerBlock: () => Number.NaN }],
  ["chunksPerBlock", { chunksPerBlock: () => 1.5 }],
  ["scratchChunks", { scratchChunks: () => -1 }],
  ["channels", { channels: 0 }],
  ["channels", { channels: 0.5 }],
])("is refused as %s of an algorithm, case %#", (field, change) => {
  const algorithm = { ...catalogue.allReduce.ring, ...change };
  const verify = () => verifyAlgorithm("allReduce", algorithm, 3);
  expect(verify).toThrowError(refusal(field));
  expect(verify).toThrowError(`algorithm: ${field}: found `);
});

test("the last index is accepted, and the next is refused", () => {
  expect(stepAt(ring, stepCount(ring) - 1)).toMatchObject({ to: expect.any(Number) });
  expect(() => stepAt(ring, stepCount(ring))).toThrowError(
    /index: found 15, needs an integer in 0..14/,
  );
  expect(pieceAt(plan, 63).length).toBeGreaterThan(0);
  expect(() => pieceAt(plan, 64)).toThrowError(refusal("element"));
});
