/** Worlds and their generations in one trace: each has rows of its own, and shows its own ranks alone. */
import { type Communicator, createWorld } from "twinccl";
import { measureBubble } from "twinccl/parallel";
import { type ChromeEvent, sim, Trace } from "twinccl/sim";
import { expect, test } from "vitest";

/** Every rank computes and meets the others. */
async function program(comm: Communicator): Promise<void> {
  comm.work(5, `work of ${comm.rank}`);
  await comm.allReduce({ send: new Int8Array(comm.size), op: "sum" });
}

/** Names of the processes that the Chrome trace shows, by pid. */
function processesOf(events: readonly ChromeEvent[]): Record<number, unknown> {
  const named = events.filter(({ name }) => name === "process_name");
  return Object.fromEntries(named.map(({ pid, args }) => [pid, args?.["name"]]));
}

/** A world of four, and what follows it without rank 1, and then without the first world's rank 3. */
async function threeGenerations(trace: Trace): Promise<void> {
  const world = await createWorld({ backend: sim({ trace }), size: 4 });
  await world.run(program);
  const second = await world.rebuild({ without: [1] });
  await second.run(program);
  const third = await second.rebuild({ without: [2] });
  await third.run(program);
  await third.close();
}

test("a rebuilt world has processes of its own, named by generation and earlier ranks", async () => {
  const trace = new Trace();
  await threeGenerations(trace);
  const { traceEvents } = trace.toChrome();
  expect(processesOf(traceEvents)).toEqual({
    ...{ 0: "rank 0", 1: "rank 1", 2: "rank 2", 3: "rank 3" },
    ...{ 4: "rank 0, generation 2", 5: "rank 1, generation 2 (rank 2 at first)" },
    6: "rank 2, generation 2 (rank 3 at first)",
    ...{ 7: "rank 0, generation 3", 8: "rank 1, generation 3 (rank 2 at first)" },
  });
  const work = traceEvents.filter(({ ph, tid }) => ph === "X" && tid === 3);
  expect(work.map(({ pid }) => pid).sort()).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
  const shown = new Set(Object.keys(processesOf(traceEvents)).map(Number));
  for (const { pid } of traceEvents) expect(shown).toContain(pid);
});

test("lines and messages show the generation, except the first", async () => {
  const trace = new Trace();
  await threeGenerations(trace);
  const lines = trace.toText().split("\n").slice(0, -1);
  const ofSize = (size: number) => lines.filter((line) => line.includes(`allReduce int8[${size}]`));
  expect(ofSize(4)).toHaveLength(8);
  for (const line of ofSize(4)) expect(line).toMatch(/ (post|done) rank=\d comm=world call=0 /);
  for (const line of ofSize(3)) expect(line).toMatch(/ rank=[012] generation=2 comm=world call=0 /);
  for (const line of ofSize(2)) expect(line).toMatch(/ rank=[01] generation=3 comm=world call=0 /);
  expect(lines).toContain("0 work rank=1 generation=3 until=5000 work of 1");
  expect(lines.some((line) => / recv rank=1 generation=2 from=\d comm=world /.test(line))).toBe(
    true,
  );
  const generations = new Set(trace.messages().map(({ world, generation }) => [world, generation]));
  expect([...generations].every(([world]) => world === 1)).toBe(true);
  expect(new Set([...generations].map(([, generation]) => generation))).toEqual(new Set([1, 2, 3]));
});

test("another world with the same trace is distinguished too", async () => {
  const trace = new Trace();
  for (let time = 0; time < 2; time++) {
    const world = await createWorld({ backend: sim({ trace }), size: 2 });
    await world.run(program);
    const next = await world.rebuild();
    await next.run(program);
    await next.close();
  }
  expect(processesOf(trace.toChrome().traceEvents)).toEqual({
    ...{ 0: "rank 0", 1: "rank 1", 2: "rank 0, generation 2", 3: "rank 1, generation 2" },
    ...{ 4: "rank 0 of world 2", 5: "rank 1 of world 2" },
    ...{ 6: "rank 0 of world 2, generation 2", 7: "rank 1 of world 2, generation 2" },
  });
  const text = trace.toText();
  expect(text).toMatch(/^0 work rank=1 world=2 until=5000 work of 1$/m);
  expect(text).toMatch(/^0 work rank=1 world=2 generation=2 until=5000 work of 1$/m);
});

test("a cleared trace begins again with the next event", async () => {
  const trace = new Trace();
  const world = await createWorld({ backend: sim({ trace }), size: 3 });
  await world.run(program);
  const next = await world.rebuild({ without: [0] });
  trace.clear();
  await next.run(program);
  await next.close();
  const { traceEvents } = trace.toChrome();
  expect(processesOf(traceEvents)).toEqual({
    0: "rank 0, generation 2 (rank 1 at first)",
    1: "rank 1, generation 2 (rank 2 at first)",
  });
  expect(measureBubble(traceEvents).busyNs).toEqual([5, 5]);
});

test("computing ranks are shown by process, where some of a trace are left out", async () => {
  const trace = new Trace();
  await threeGenerations(trace);
  const last = trace.toChrome().traceEvents.filter(({ pid }) => pid >= 7);
  expect(measureBubble(last)).toEqual({ spanNs: 5, busyNs: [5, 5], share: 0 });
});

test("the drawing has a band for each process, with its name", async () => {
  const trace = new Trace();
  await threeGenerations(trace);
  const labels = [...trace.toSvg().matchAll(/<text x="8"[^>]*>([^<]*)</g)].map(
    ([, label]) => label,
  );
  expect(labels).toEqual(Object.values(processesOf(trace.toChrome().traceEvents)));
});
