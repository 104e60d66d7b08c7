/** The settings under which neither size nor position of an element matters, with NCCL's own predicted times. */

import { protocols } from "../nccl/rules.ts";
import { acrossCounts, acrossPlaces } from "./differences.ts";
import { type Resolved, requestOf } from "./question.ts";
import { type CallRequest, Calls, isServed } from "./stretches.ts";

/** Settings with their price. */
export interface PricedSettings {
  /** NCCL's variables; none where its defaults suffice. */
  readonly variables: Readonly<Record<string, string>>;
  /** Predicted microseconds of the smallest, the middle (geometric) and the largest count, for each number of ranks. */
  readonly times: readonly PricedTimes[];
  /** True if a variable limits channels, which NCCL's table of times ignores. */
  readonly limitsChannels: boolean;
}

/** Predicted times of one number of ranks, under settings and by NCCL's own choice. */
export interface PricedTimes {
  readonly ranks: number;
  readonly counts: readonly number[];
  readonly us: readonly number[];
  /** Those of NCCL's own choice. */
  readonly freeUs: readonly number[];
}

type Change = Pick<CallRequest, "forced" | "settings">;

interface Candidate {
  readonly variables: Readonly<Record<string, string>>;
  readonly change: Change;
}

/** The settings with the fewest variables, cheapest first at the largest count. */
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
      limitsChannels: "NCCL_MAX_NCHANNELS" in variables,
    }))
    .sort((a, b) => last(a) - last(b));
}

function last({ times }: PricedSettings): number {
  return times.reduce((sum, { us }) => sum + (us.at(-1) ?? 0), 0);
}

/** All settings of algorithm, protocol and one channel, those with few variables first. */
function candidates({ collective, environment }: Resolved): Candidate[] {
  const { settings } = environment;
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
          settings: isOne ? { ...settings, minChannels: 1, maxChannels: 1 } : settings,
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
    return acrossCounts(calls) === undefined && acrossPlaces(calls) === undefined;
  });
}

function timesOf(resolved: Resolved, ranks: number, change: Change): PricedTimes {
  const { counts, environment } = resolved;
  const { from, to, row } = counts;
  const middle = row * Math.round(Math.sqrt(from * to) / row);
  const request = requestOf(resolved, ranks);
  const calls = new Calls({ ...request, ...change }, counts);
  const free = new Calls({ ...request, forced: {}, settings: environment.settings }, counts);
  const each = [...new Set([from, middle, to])];
  return {
    ranks,
    counts: each,
    us: each.map((count) => calls.predictedUs(count)),
    freeUs: each.map((count) => free.predictedUs(count)),
  };
}
