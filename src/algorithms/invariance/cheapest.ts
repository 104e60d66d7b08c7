/**
 * The settings under which neither size nor position of an element matters, with their predicted times.
 *
 * Times are those of a measured machine by its profile, for the plans that NCCL takes under the settings. Machines and versions
 * without a profile have none: NCCL's own table of costs ranks algorithms, and is far from what they take.
 */

import { protocols, rulesOf } from "../nccl/rules.ts";
import {
  type CallTime,
  callUs,
  extrapolationOf,
  type MachineProfile,
  machineProfiles,
  timedPlan,
} from "../nccl/times/index.ts";
import { acrossCounts, acrossPlaces } from "./differences.ts";
import { type Resolved, requestOf } from "./question.ts";
import { type CallRequest, Calls, isServed } from "./stretches.ts";

/** Settings with their price. */
export interface PricedSettings {
  /** NCCL's variables; none where its defaults suffice. */
  readonly variables: Readonly<Record<string, string>>;
  /** Predicted times of the smallest, the middle (geometric) and the largest count, for each number of ranks. */
  readonly times: readonly PricedTimes[];
}

/** Predicted times of one number of ranks, under settings and by NCCL's own choice. */
export interface PricedTimes {
  readonly ranks: number;
  readonly counts: readonly number[];
  /** The measured machine and library that the times are predicted for; `undefined` where there is none. */
  readonly predictedFor: string | undefined;
  /** By count; empty without a measured machine. */
  readonly times: readonly CallTime[];
  /** Those of NCCL's own choice, without any variable. */
  readonly freeTimes: readonly CallTime[];
  /** Those under the variables of the question. */
  readonly askedTimes: readonly CallTime[];
}

type Change = Pick<CallRequest, "forced" | "settings">;

interface Candidate {
  readonly variables: Readonly<Record<string, string>>;
  readonly change: Change;
}

/** The settings with the fewest variables, cheapest first at the largest count where times are predicted. */
export function cheapestSettings(resolved: Resolved): PricedSettings[] {
  const found: Candidate[] = [];
  for (const candidate of candidates(resolved)) {
    const names = Object.entries(candidate.variables);
    const isMore = found.some(({ variables }) =>
      Object.entries(variables).every(([name, value]) =>
        names.some(([other, given]) => name === other && value === given),
      ),
    );
    if (!isMore && isInvariant(resolved, candidate.change)) found.push(candidate);
  }
  return found
    .map(({ variables, change }) => ({
      variables,
      times: resolved.ranks
        .filter((ranks) => ranks > 1)
        .map((ranks) => timesOf(resolved, ranks, change)),
    }))
    .sort((a, b) => last(a) - last(b));
}

function last({ times: all }: PricedSettings): number {
  return all.reduce((sum, { times }) => sum + (times.at(-1)?.us ?? 0), 0);
}

/** All settings of algorithm, protocol and one channel, those with few variables first. */
function candidates({ collective }: Resolved): Candidate[] {
  const algorithms =
    collective === "allReduce" ? ([undefined, "Tree", "Ring"] as const) : [undefined];
  const all = algorithms.flatMap((algorithm) =>
    [undefined, ...protocols].flatMap((protocol) =>
      [false, true].map((isOne) => ({
        variables: {
          ...(algorithm && { NCCL_ALGO: `allreduce:${algorithm.toLowerCase()}` }),
          ...(protocol && { NCCL_PROTO: protocol }),
          ...(isOne && { NCCL_MAX_NCHANNELS: "1" }),
        },
        change: {
          forced: { algorithm, protocol },
          settings: isOne ? { minChannels: 1, maxChannels: 1 } : {},
        },
      })),
    ),
  );
  const size = ({ variables }: Candidate): number => Object.keys(variables).length;
  return all.sort((a, b) => size(a) - size(b));
}

function isInvariant(resolved: Resolved, change: Change): boolean {
  return resolved.ranks.every((ranks) => {
    const request = { ...requestOf(resolved, ranks), ...change };
    if (ranks > 1 && !isServed(request, resolved.counts.from)) return false;
    const calls = new Calls(request, resolved.counts);
    if (!calls.isDecidable) return false;
    return acrossCounts(calls) === undefined && acrossPlaces(calls) === undefined;
  });
}

function timesOf(resolved: Resolved, ranks: number, change: Change): PricedTimes {
  const { counts } = resolved;
  const { from, to, row } = counts;
  const middle = row * Math.round(Math.sqrt(from * to) / row);
  const request = requestOf(resolved, ranks);
  const calls = new Calls({ ...request, ...change }, counts);
  const free = new Calls({ ...request, forced: {}, settings: {} }, counts);
  const each = [...new Set([from, middle, to])];
  const profile = profileOf(request);
  const timesOn = (of: Calls): CallTime[] =>
    profile === undefined ? [] : each.map((count) => timeAt(of, count, profile));
  const predictedFor = profile && `${profile.machine}, NCCL ${profile.nccl}`;
  const [times, freeTimes] = [timesOn(calls), timesOn(free)];
  const askedTimes = timesOn(new Calls(request, counts));
  return { ranks, counts: each, predictedFor, times, freeTimes, askedTimes };
}

/** The profile of the machine and version; `undefined` where it was not measured. */
function profileOf({ topology, version }: CallRequest): MachineProfile | undefined {
  const { name } = topology;
  const profile = Object.hasOwn(machineProfiles, name) ? machineProfiles[name] : undefined;
  return profile?.nccl === rulesOf(version).version ? profile : undefined;
}

function timeAt(calls: Calls, count: number, profile: MachineProfile): CallTime {
  const { collective, dtype, op, root, topology, settings = {} } = calls.request;
  const call = timedPlan(calls.plan(count));
  const us = call === undefined ? 0 : callUs(profile.numbers, call, profile.mode);
  const question = { collective, ranks: topology.ranks, count, dtype, op, root };
  const isSet = Object.values(settings).some((value) => value !== undefined);
  const why = extrapolationOf(profile, question, call);
  const extrapolated =
    why ?? (isSet ? "measured without settings of channels, threads and buffers" : undefined);
  return { us, extrapolated };
}
