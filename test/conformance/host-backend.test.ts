/** The backend of docs/backends.md, taken out of the page: `host-backend.ts` is the page's text, and `-u` rewrites it. */
import { readFileSync } from "node:fs";
import { type Communicator, createWorld, InvalidArgumentError, type Question } from "twinccl";
import { checkProperty, programs, runProgram } from "twinccl/testing";
import { describe, expect, test } from "vitest";
import { bytesFromBits, isFloat } from "../../src/testing/oracle/elements.ts";
import { type FoldOracle, judgeRun } from "../../src/testing/oracle/judge.ts";
import { oracleFinish, oracleFold } from "../../src/testing/oracle/rounding.ts";
import { runsOf } from "../support/seed.ts";
import { host } from "./host-backend.ts";
import { someSizes } from "./sizes.ts";
import { worldsConform } from "./worlds.ts";

const page = readFileSync(new URL("../../docs/backends.md", import.meta.url), "utf8");

test("is the code of docs/backends.md", async () => {
  const [, code = ""] = /^```ts\n(.*?)^```$/ms.exec(page) ?? [];
  expect(code).toContain("export const host");
  await expect(code).toMatchFileSnapshot("./host-backend.ts");
});

worldsConform({
  name: "host",
  backend: host,
  sizes: someSizes,
  capabilities: {
    hostArrays: true,
    virtualTime: false,
    deterministic: true,
    symmetricMemory: false,
  },
});

test("gives whole programs what the oracle requires", async () => {
  await checkProperty(
    programs(),
    async (program) => judgeRun(program, await runProgram(host(), program)),
    { runs: runsOf(200) },
  );
});

/** Left folds in the order of ranks, rounded at every hop. */
const inRankOrder: FoldOracle = ({ dtype }, ops, sent) => {
  const ranks = sent.length;
  const scales = typeof ops[0] === "object" || (ops[0] === "avg" && isFloat(dtype));
  if (ranks === 1 && !scales) return bytesFromBits(dtype, sent[0]!);
  const folded = sent[0]!.map((_, at) => {
    let begin: { begin?: bigint } = {};
    for (const [rank, bits] of sent.entries()) {
      const call = { dtype, op: ops[rank]!, ranks, rounding: "fused", finish: false } as const;
      begin = { begin: oracleFold({ ...call, ...begin, contributions: [bits[at]!] }) };
    }
    return oracleFinish({ dtype, op: ops[0]!, ranks, bits: begin.begin! });
  });
  return bytesFromBits(dtype, folded);
};

test("folds any bits in the order of ranks, rounded once at every hop", async () => {
  await checkProperty(
    programs({
      payload: "bits",
      kinds: ["allReduce", "reduce", "reduceScatter", "reduceScatterv"],
    }),
    async (program) => judgeRun(program, await runProgram(host(), program), inRankOrder),
    { runs: runsOf(100) },
  );
});

describe("its explanation", () => {
  const row = [1, 0, 4];
  const [allGatherv, gather] = ["copy of r0 in[0]", "copy of r2 in[0]"];
  const questions: readonly [Question, number, readonly (number | string)[][]][] = [
    [{ collective: "allReduce", op: "sum", count: 9 }, 1, [[0, 9, "(r0 + r1) + r2"]]],
    [{ collective: "reduce", op: "max", count: 2, root: 2 }, 1, [[0, 2, "(r0 max r1) max r2"]]],
    [{ collective: "reduceScatterv", op: "sum", counts: [row] }, 2, [[0, 4, "(r0 + r1) + r2"]]],
    [
      { collective: "allGatherv", counts: [row] },
      0,
      [
        [0, 1, allGatherv],
        [1, 0, "copy of r1 in[0]"],
        [1, 4, gather],
      ],
    ],
    [{ collective: "scatter", root: 1, counts: [row] }, 2, [[0, 4, "copy of r1 in[2]"]]],
    [
      { collective: "allToAllv", counts: [row, [2, 2, 2], [5, 6, 7]] },
      1,
      [
        [0, 0, "copy of r0 in[1]"],
        [0, 2, "copy of r1 in[1]"],
        [2, 6, "copy of r2 in[1]"],
      ],
    ],
    [{ collective: "barrier" }, 0, []],
  ];

  test.each(questions)(
    "has the chunks of a rank's output: %o, rank %i",
    async (question, rank, rows) => {
      const dtype = question.collective === "barrier" ? {} : ({ dtype: "float32" } as const);
      const plans = await inHostWorld((comm) => comm.explain({ ...question, ...dtype }));
      const { chunks, chunkOf } = plans[rank]!;
      expect(chunks.map(({ offset, length, fold }) => [offset, length, fold])).toEqual(rows);
      for (const chunk of chunks) if (chunk.length > 0) expect(chunkOf(chunk.offset)).toBe(chunk);
      expect(() => chunkOf(99)).toThrow(InvalidArgumentError);
      expect(String(plans[rank])).toContain(`${question.collective} `);
    },
  );

  test("is refused for messages", async () => {
    const explained = inHostWorld((comm) => comm.explain({ collective: "send", dtype: "int8" }));
    await expect(explained).rejects.toMatchObject({ cause: { code: "ERR_COMM_UNSUPPORTED" } });
  });
});

async function inHostWorld<T>(program: (comm: Communicator) => T): Promise<T[]> {
  const world = await createWorld({ backend: host(), size: 3 });
  try {
    return await world.run(program);
  } finally {
    await world.close();
  }
}
