/**
 * The time of one question for the time of a call of NCCL, with the reason why it is extrapolated, once its plan is known.
 *
 * Processor time of the least of many rounds, because other programs slow down single rounds.
 */
import {
  type MachineProfile,
  machineProfiles,
  type TimedQuestion,
  timeOf,
} from "twinccl/algorithms";
import { type Figure, report } from "./support/report.ts";

const profile = machineProfiles["h200x8"] as MachineProfile;
const rounds = 200;
const repeats = 20;

/** All sizes from 8 bytes to 512 MiB. */
const sizes = Array.from({ length: 27 }, (_, i) => 2 ** (i + 1));

function questions(collective: TimedQuestion["collective"], mode: TimedQuestion["mode"]) {
  return [2, 4, 8].flatMap((ranks) =>
    sizes.map((count): TimedQuestion => ({ collective, ranks, count, dtype: "float32", mode })),
  );
}

function microseconds(asked: readonly TimedQuestion[]): number {
  let least = Number.POSITIVE_INFINITY;
  for (let round = 0; round < rounds; round++) {
    const began = process.cpuUsage();
    for (let i = 0; i < repeats; i++) for (const question of asked) timeOf(profile, question);
    const { user, system } = process.cpuUsage(began);
    least = Math.min(least, (user + system) / (repeats * asked.length));
  }
  return least;
}

const lines: readonly [string, TimedQuestion["collective"], TimedQuestion["mode"]][] = [
  ["all-reduce", "allReduce", {}],
  ["all-reduce, symmetric memory", "allReduce", { memory: "symmetric" }],
  ["all-reduce, awaited", "allReduce", { launch: "eager", awaited: true }],
  ["broadcast", "broadcast", {}],
  ["all-to-all", "allToAll", {}],
];

const figures: Figure[] = lines.map(([name, collective, mode]) => {
  return { name, unit: "us", value: microseconds(questions(collective, mode)), goal: 2 };
});
report("call-time", figures);
