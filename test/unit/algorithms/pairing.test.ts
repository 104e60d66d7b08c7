/** Which send every receive meets. */
import { buildProgram, catalogue, input, output, ProgramBuilder } from "twinccl/algorithms";
import { describe, expect, test } from "vitest";
import { pairing } from "../../../src/algorithms/pairing.ts";

const head = { collective: "allReduce", algorithm: "none", root: -1, chunksPerBlock: 4 } as const;

describe("a receive meets", () => {
  test("the message that was sent to it first, whoever else is sent to in between", () => {
    const builder = new ProgramBuilder({ ...head, ranks: 3 });
    builder.lane(0).send(input(0), 1).send(input(0), 2).send(input(1), 1).send(input(1), 2);
    builder.lane(1).recv(0, output(0)).recv(0, output(1));
    builder.lane(2).recv(0, output(0)).recv(0, output(1));
    expect(Array.from(pairing(builder.build()))).toEqual([-1, -1, -1, -1, 0, 2, 1, 3]);
  });

  test("messages of its own channel only", () => {
    const builder = new ProgramBuilder({ ...head, ranks: 2, channels: 2 });
    builder.lane(0, 0).send(input(0), 1);
    builder.lane(0, 1).send(input(1), 1);
    builder.lane(1, 1).recv(0, output(1));
    builder.lane(1, 0).recv(0, output(0));
    expect(Array.from(pairing(builder.build()))).toEqual([-1, -1, 0, 1]);
  });

  test("nothing when nothing is sent, or no such rank exists", () => {
    const builder = new ProgramBuilder({ ...head, ranks: 2 });
    builder.lane(0).send(input(0), 1).send(input(0), 7);
    builder.lane(1).recv(0, output(0)).recv(0, output(1)).recv(1, output(2)).recv(7, output(3));
    expect(Array.from(pairing(builder.build()))).toEqual([-1, -1, 0, -1, -1, -1]);
  });

  test("itself, where a rank sends to itself", () => {
    const builder = new ProgramBuilder({ ...head, ranks: 1 });
    builder.lane(0).send(input(0), 0).recv(0, output(0));
    expect(Array.from(pairing(builder.build()))).toEqual([-1, 0]);
  });
});

test("of a ring, the step of the same number one rank before", () => {
  const program = buildProgram("allReduce", catalogue.allReduce.ring, 4, -1);
  const pairs = pairing(program);
  const steps = 7;
  for (let rank = 0; rank < 4; rank++) {
    const before = ((rank + 3) % 4) * steps;
    expect(Array.from(pairs.subarray(rank * steps, (rank + 1) * steps))).toEqual([
      -1,
      ...Array.from({ length: steps - 1 }, (_, step) => before + step),
    ]);
  }
});
