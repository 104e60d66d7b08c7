/**
 * The engines at scale: how many messages a second, how many ranks, in how much memory.
 *
 * Sizes only. Memory is this process's peak, so every line has a process of its own: the file starts itself with the
 * line's name.
 */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import {
  algorithmsOf,
  briefLane,
  buildProgram,
  builtCollectives,
  catalogue,
  foldedTiming,
  fuse,
  layoutOf,
  linkModel,
  linkOf,
  MessageLog,
  runEvents,
  runRecurrence,
  trafficOf,
  writtenLanes,
} from "twinccl/algorithms";
import { type Figure, report } from "./support/report.ts";

const model = linkModel(linkOf({}), 4);
const { ring } = catalogue.allReduce;
const mebibyte = 2 ** 18;

/** The traffic of a ring all-reduce of 1 MiB of float32 a rank. */
function ringTraffic(ranks: number) {
  const source = writtenLanes("allReduce", ring, ranks);
  return trafficOf(source, layoutOf(source, { count: mebibyte }));
}

interface Line {
  readonly name: string;
  readonly goalSeconds: number;
  readonly goalMegabytes?: number;
  /** Does it all, from writing the program on; gives the messages that were timed one by one. */
  readonly run: () => number;
}

const million = 2 ** 20;
const lines: readonly Line[] = [
  {
    name: "ring, 1,024 ranks, recurrence",
    goalSeconds: 0.8,
    goalMegabytes: 150,
    run: () => {
      const traffic = ringTraffic(1024);
      runRecurrence(traffic, model);
      return traffic.messages;
    },
  },
  {
    name: "ring, 1,024 ranks, events with credits",
    goalSeconds: 0.8,
    goalMegabytes: 150,
    run: () => {
      const traffic = ringTraffic(1024);
      runEvents(traffic, model, { credits: 8 });
      return traffic.messages;
    },
  },
  {
    name: "ring, 1,024 ranks, events with credits and trace",
    goalSeconds: 2,
    goalMegabytes: 150,
    run: () => {
      const traffic = ringTraffic(1024);
      runEvents(traffic, model, { credits: 8, log: new MessageLog() });
      return traffic.messages;
    },
  },
  {
    name: "binomial reduce, 2^20 ranks, events with credits",
    goalSeconds: 3,
    goalMegabytes: 500,
    run: () => {
      const source = writtenLanes("reduce", catalogue.reduce.binomial, million, 0);
      const traffic = trafficOf(source, layoutOf(source, { count: mebibyte }));
      runEvents(traffic, model, { credits: 8 });
      return traffic.messages;
    },
  },
  ...builtCollectives.flatMap((collective) =>
    algorithmsOf(collective).flatMap((algorithm): Line[] => {
      if (algorithm.symmetry?.(million) === undefined) return [];
      const run = (): number => {
        foldedTiming(briefLane(collective, algorithm, million) ?? [], 256, model);
        return 0;
      };
      return [
        { name: `${collective} ${algorithm.name}, 2^20 ranks, fold`, goalSeconds: 0.01, run },
      ];
    }),
  ),
  {
    name: "ring, 256 ranks, program and folds",
    goalSeconds: 0.5,
    run: () => {
      fuse(buildProgram("allReduce", ring, 256, -1));
      return 0;
    },
  },
];

/** Runs one line and prints its figures for the parent. */
function measure({ run }: Line): void {
  const began = performance.now();
  const before = process.cpuUsage();
  const messages = run();
  const seconds = (performance.now() - began) / 1000;
  const { user, system } = process.cpuUsage(before);
  const cpuSeconds = (user + system) / 1e6;
  const megabytes = process.resourceUsage().maxRSS / 1000;
  process.stdout.write(JSON.stringify({ seconds, cpuSeconds, megabytes, messages }));
}

function figuresOf({ name, goalSeconds, goalMegabytes }: Line): Figure[] {
  const self = fileURLToPath(import.meta.url);
  const { stdout, stderr, status } = spawnSync(process.execPath, [self, "--line", name], {
    encoding: "utf8",
  });
  if (status !== 0) throw new Error(`${name}: ${stderr}`);
  const { seconds, cpuSeconds, megabytes, messages } = JSON.parse(stdout);
  // On a machine that others use too, the processor's time says more than the clock's.
  const figures: Figure[] = [
    { name, unit: "s", value: seconds, goal: goalSeconds },
    { name: `${name}: processor`, unit: "s", value: cpuSeconds },
  ];
  if (messages > 0) {
    const value = messages / seconds / 1e6;
    figures.push({ name: `${name}: rate`, unit: "million messages/s", value });
  }
  if (goalMegabytes === undefined) return figures;
  return [...figures, { name: `${name}: peak`, unit: "MB", value: megabytes, goal: goalMegabytes }];
}

const at = process.argv.indexOf("--line");
const wanted = at < 0 ? undefined : lines.find(({ name }) => name === process.argv[at + 1]);
if (wanted !== undefined) measure(wanted);
else report("engine", lines.flatMap(figuresOf));
