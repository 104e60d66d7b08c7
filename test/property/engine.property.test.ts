/**
 * The engines against a list of everything that will happen, on random programs, shapes, links and credits; and against
 * each other where nothing contends.
 */
import fc from "fast-check";
import { specifications } from "twinccl";
import {
  algorithmsOf,
  briefLane,
  buildProgram,
  builtCollectives,
  type Fabric,
  foldedTiming,
  input,
  type LinkModel,
  lanesOfProgram,
  layoutOf,
  MessageLog,
  output,
  type Program,
  ProgramBuilder,
  type Ref,
  runEvents,
  runRecurrence,
  type Timing,
  type Traffic,
  trafficOf,
  writtenLanes,
} from "twinccl/algorithms";
import { describe, expect, test } from "vitest";
import { holds } from "../support/seed.ts";
import { type OracleCase, type OracleStep, oracleTimes } from "../support/timing-oracle.ts";

const chunks = 3;

/** A value that goes from rank to rank, as often as it says. */
interface Journey {
  readonly path: readonly number[];
  readonly channel: number;
  readonly chunk: number;
  readonly times: number;
}

interface Random {
  readonly ranks: number;
  readonly channels: number;
  readonly journeys: readonly Journey[];
  readonly count: number;
  readonly start: readonly number[];
  readonly latency: number;
  readonly perElement: number;
  readonly credits: number;
  readonly links: readonly { readonly latency: number; readonly perElement: number }[];
  /** Decides the links of every pair. */
  readonly routes: number;
}

const journeys = fc.record({
  path: fc.array(fc.nat({ max: 4 }), { minLength: 2, maxLength: 5 }),
  channel: fc.nat({ max: 2 }),
  chunk: fc.nat({ max: chunks - 1 }),
  times: fc.integer({ min: 1, max: 4 }),
});
const randoms: fc.Arbitrary<Random> = fc.record({
  ranks: fc.integer({ min: 1, max: 5 }),
  channels: fc.integer({ min: 1, max: 3 }),
  journeys: fc.array(journeys, { maxLength: 12 }),
  count: fc.nat({ max: 20 }),
  start: fc.array(fc.nat({ max: 60 }), { minLength: 5, maxLength: 5 }),
  latency: fc.nat({ max: 40 }),
  perElement: fc.nat({ max: 5 }),
  credits: fc.integer({ min: 1, max: 4 }),
  links: fc.array(fc.record({ latency: fc.nat({ max: 9 }), perElement: fc.nat({ max: 9 }) }), {
    minLength: 1,
    maxLength: 4,
  }),
  routes: fc.nat(),
});

/** The links between two ranks, up to three; few enough that messages meet. */
function routeOf({ links, routes }: Random, from: number, to: number): number[] {
  const word = Math.imul(routes + 31 * from + 7 * to + 1, 0x9e3779b1) >>> 0;
  return Array.from({ length: word % 4 }, (_, hop) => (word >>> (4 * hop + 2)) % links.length);
}

function fabricOf(random: Random): Fabric {
  const { links } = random;
  return {
    links: links.length,
    link: (from, to, hop) => routeOf(random, from, to)[hop] ?? -1,
    latency: (link) => links[link]!.latency,
    occupancy: (link, elements) => links[link]!.perElement * elements,
  };
}

/** The same random program for the library and for the oracle. */
function programsOf(random: Random): { program: Program; lanes: OracleStep[][][] } {
  const { ranks, channels, count } = random;
  const head = { collective: "allReduce", algorithm: "random", root: -1 } as const;
  const builder = new ProgramBuilder({ ...head, ranks, channels, chunksPerBlock: chunks });
  const lanes: OracleStep[][][] = Array.from({ length: ranks }, () =>
    Array.from({ length: channels }, () => []),
  );
  const lengthOf = (chunk: number): number =>
    Math.floor(count / chunks) + (chunk < count % chunks ? 1 : 0);
  for (const { path, channel, chunk, times } of random.journeys) {
    const on = channel % channels;
    const way = path.map((rank) => rank % ranks);
    const ref: Ref = output(chunk);
    for (let time = 0; time < times; time++) {
      way.forEach((rank, hop) => {
        const from = way[hop - 1];
        const to = way[hop + 1];
        const lane = builder.lane(rank, on);
        if (from === undefined) lane.send(input(chunk), to!);
        else if (to === undefined) lane.recv(from, ref);
        else lane.recvCopySend(from, ref, to);
        lanes[rank]![on]!.push({
          ...(from === undefined ? {} : { from }),
          ...(to === undefined ? {} : { to }),
          elements: lengthOf(chunk),
        });
      });
      // Steps that take no time lie between others.
      if (chunk === 1) builder.lane(way[0]!, on).copy(input(0), ref);
    }
  }
  return { program: builder.build(), lanes };
}

/** Finishing times and all messages, comparable with the oracle's. */
function timingAndMessages(
  traffic: Traffic,
  model: LinkModel,
  run: (log: MessageLog) => Timing,
): { finished: number[]; messages: string[] } {
  const log = new MessageLog();
  const { finished } = run(log);
  const taken = new Map<string, number>();
  const messages: string[] = [];
  log.each(traffic, model, (event) => {
    const { from, to, channel, elements, sendStart, sendEnd, recvStart, recvEnd } = event;
    const who = `${from}>${to}/${channel}`;
    const number = taken.get(who) ?? 0;
    taken.set(who, number + 1);
    messages.push(`${who} #${number} ${elements} ${sendStart}-${sendEnd} ${recvStart}-${recvEnd}`);
  });
  expect(log.length).toBe(messages.length);
  return { finished: Array.from(finished), messages: messages.sort() };
}

function modelOf({ latency, perElement }: Random): LinkModel {
  return { latency, occupancy: (elements) => perElement * elements };
}

describe("random programs take the times of the oracle", () => {
  const caseOf = (random: Random, lanes: OracleStep[][][]): OracleCase => ({
    lanes,
    start: random.start.slice(0, random.ranks),
    latency: random.latency,
    perElement: random.perElement,
  });
  const runsOf = (random: Random) => {
    const { program, lanes } = programsOf(random);
    const traffic = trafficOf(lanesOfProgram(program), layoutOf(program, { count: random.count }));
    return { traffic, model: modelOf(random), given: caseOf(random, lanes) };
  };

  test("by the recurrence, where nothing contends", async () => {
    await holds(
      randoms.map((random) => ({ ...random, channels: 1 })),
      (random) => {
        const { traffic, model, given } = runsOf(random);
        const { start } = random;
        const found = timingAndMessages(traffic, model, (log) =>
          runRecurrence(traffic, model, { start, log }),
        );
        expect(found).toEqual(oracleTimes(given));
        expect(
          timingAndMessages(traffic, model, (log) => runEvents(traffic, model, { start, log })),
        ).toEqual(found);
      },
      600,
    );
  });

  test("by events, with lanes that share ports and channels of few slots", async () => {
    await holds(
      randoms,
      (random) => {
        const { traffic, model, given } = runsOf(random);
        const { start, credits } = random;
        const events = (options: object) =>
          timingAndMessages(traffic, model, (log) =>
            runEvents(traffic, model, { start, log, ...options }),
          );
        expect(events({})).toEqual(oracleTimes(given));
        expect(events({ credits })).toEqual(oracleTimes({ ...given, credits }));
      },
      600,
    );
  });

  test("by events, on links that messages queue for", async () => {
    await holds(
      randoms,
      (random) => {
        const { traffic, model, given } = runsOf(random);
        const { start, credits, links } = random;
        const fabric = fabricOf(random);
        const route = (from: number, to: number) => routeOf(random, from, to);
        const events = (options: object) =>
          timingAndMessages(traffic, model, (log) =>
            runEvents(traffic, model, { start, log, fabric, ...options }),
          );
        expect(events({})).toEqual(oracleTimes({ ...given, links, route }));
        expect(events({ credits })).toEqual(oracleTimes({ ...given, links, route, credits }));
      },
      600,
    );
  });
});

const rows = builtCollectives.flatMap((collective) =>
  algorithmsOf(collective).map((algorithm) => ({ collective, name: algorithm.name, algorithm })),
);

describe("both engines agree where nothing contends", () => {
  const shapes = fc.record({
    ranks: fc.integer({ min: 1, max: 20 }),
    count: fc.nat({ max: 70 }),
    latency: fc.nat({ max: 500 }),
    perElement: fc.nat({ max: 30 }),
    starts: fc.array(fc.nat({ max: 3000 }), { minLength: 20, maxLength: 20 }),
  });

  test.each(rows.filter(({ algorithm }) => (algorithm.channels ?? 1) === 1))(
    "$collective $name",
    async ({ collective, algorithm }) => {
      await holds(
        shapes,
        ({ ranks, count, latency, perElement, starts }) => {
          const root = specifications[collective].rooted ? ranks >> 1 : -1;
          const program = buildProgram(collective, algorithm, ranks, root);
          const layout = layoutOf(program, { count });
          const traffic = trafficOf(writtenLanes(collective, algorithm, ranks, root), layout);
          // What an algorithm writes lane by lane is what its program says.
          expect(traffic).toEqual(trafficOf(lanesOfProgram(program), layout));
          const model = { latency, occupancy: (elements: number) => elements * perElement };
          const start = starts.slice(0, ranks);
          const recurrence = runRecurrence(traffic, model, { start });
          const events = { ...recurrence, waited: 0 };
          expect(runEvents(traffic, model, { start })).toEqual(events);
          expect(runEvents(traffic, model, { start, credits: 1000 })).toEqual(events);
          // Links that are passed in no time, with no other link's leave, change nothing.
          const free: Fabric = {
            links: 1,
            link: (_, __, hop) => (hop < 2 ? 0 : -1),
            latency: () => 0,
            occupancy: () => 0,
          };
          expect(runEvents(traffic, model, { start, fabric: free })).toEqual(events);
        },
        40,
      );
    },
  );
});

describe("one rank stands for all of a symmetric program", () => {
  const shapes = fc.record({
    ranks: fc.oneof(
      fc.integer({ min: 1, max: 40 }),
      fc.nat({ max: 5 }).map((bit) => 2 ** bit),
    ),
    chunkElements: fc.nat({ max: 9 }),
    latency: fc.nat({ max: 500 }),
    base: fc.nat({ max: 20 }),
    perElement: fc.nat({ max: 30 }),
    starts: fc.array(fc.nat({ max: 3000 }), { minLength: 40, maxLength: 40 }),
  });
  const symmetric = rows.filter(({ algorithm }) => algorithm.symmetry?.(8) !== undefined);

  test("ring, doubling, halving and pairwise programs are symmetric", () => {
    expect(symmetric.map(({ collective, name }) => `${collective} ${name}`)).toEqual([
      "allReduce ring",
      "allReduce halving-doubling",
      "allReduce recursive-doubling",
      "allGather ring",
      "allGather bruck",
      "allGatherv ring",
      "reduceScatter ring",
      "reduceScatter recursive-halving",
      "reduceScatterv ring",
      "allToAll pairwise",
      "allToAll bruck",
      "allToAllv pairwise",
      "barrier dissemination",
    ]);
  });

  test.each(symmetric)("$collective $name", async ({ collective, algorithm }) => {
    await holds(
      shapes,
      ({ ranks, chunkElements, latency, base, perElement }) => {
        const blocks = briefLane(collective, algorithm, ranks);
        expect(blocks === undefined).toBe(algorithm.symmetry?.(ranks) === undefined);
        if (blocks === undefined) return;
        const source = writtenLanes(collective, algorithm, ranks);
        const count = chunkElements * source.chunksPerBlock;
        const traffic = trafficOf(source, layoutOf(source, { count }));
        const model = { latency, occupancy: (elements: number) => base + elements * perElement };
        const folded = foldedTiming(blocks, chunkElements, model);
        const together = runRecurrence(traffic, model);
        expect(Array.from(together.finished)).toEqual(Array(ranks).fill(folded.finished));
        expect(Array.from(together.sentElements)).toEqual(Array(ranks).fill(folded.sentElements));
        expect(traffic.messages).toBe(ranks * folded.messages);
      },
      60,
    );
  });
});
