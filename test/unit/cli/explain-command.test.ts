import { expect, test } from "vitest";
import { cli } from "./harness.ts";

const ring = "explain allReduce --ranks 4 --count 10 --dtype float32 --op sum --algorithm ring";

test("the plan is printed", async () => {
  const { status, out } = await cli(ring);
  expect(status).toBe(0);
  expect(out).toMatch(/^allReduce float32\[10\] sum on 4 ranks: ring\n/);
  expect(out).toContain("µs predicted");
});

test("one element: its chunk and the order in which it is folded", async () => {
  const { out } = await cli(`${ring} --element 5`);
  expect(out).toMatch(
    /^element 5 lies in chunk \d: elements \d\.\.\d\nvalue: .*r0.*\norder: \d, \d, \d, \d\n$/,
  );
  const { element, order } = JSON.parse((await cli(`${ring} --element 5 --json`)).out);
  expect(element).toBe(5);
  expect([...order].sort()).toEqual([0, 1, 2, 3]);
});

test("JSON holds the facts", async () => {
  const { out } = await cli(`${ring} --json`);
  expect(JSON.parse(out)).toMatchObject({ collective: "allReduce", algorithm: "ring", ranks: 4 });
});

test("an element outside of the output is an error, not a crash", async () => {
  const { status, err } = await cli(`${ring} --element 10`);
  expect(status).toBe(1);
  expect(err).toContain("element 10 lies in no chunk");
  expect(err).not.toMatch(/^ {4}at /m);
});

test("a large program is predicted without its folds, and shown by its first and last steps", async () => {
  const { status, out } = await cli("explain allReduce --ranks 512 --count 262144");
  expect(status).toBe(0);
  expect(out).toContain("allReduce float32[262144] sum on 512 ranks: ring");
  expect(out).toContain("1022 steps, at most 2093056 bytes sent per rank");
  expect(out).toContain("512 chunks of the output of rank 0: chunkOf(element) tells");
  expect(out.match(/^ +959 more steps$/gm)).toHaveLength(2);
  expect(out.split("\n").length).toBeLessThan(150);
});
