/** The state of the page, as it stands in its address: everything needed to see the same again. */
import { type DType, dtypes, type NamedReduceOp, namedReduceOps, specifications } from "twinccl";
import { builtCollectives } from "twinccl/algorithms";
import { namedNetwork, type PlannedCall, planIds } from "./plans.ts";

export type OpName = NamedReduceOp | "preMul";
export type ValueKind = (typeof valueKinds)[number];

/** The call, how it is done, and what of it is looked at. */
export interface State extends PlannedCall {
  /** Elements as NCCL counts them. */
  readonly count: number;
  readonly dtype: DType;
  readonly op: OpName;
  /** Of `preMul`. */
  readonly scalar: number;
  readonly root: number;
  readonly values: ValueKind;
  readonly seed: number;
  /** Nanoseconds from one rank to another. */
  readonly latency: number;
  /** 10⁹ bytes a second of a port. */
  readonly bandwidth: number;
  /** Rank and element of the output that is looked at. */
  readonly rank: number;
  readonly element: number;
  /** Virtual time in picoseconds; -1 for a film that begins by itself. */
  readonly time: number;
  readonly lanes: "ranks" | "links";
}

const maxRanks = 32;
const maxElements = 1_048_576;
/** Elements in the buffers of all ranks: many more of them stop a browser. */
const maxHeld = maxElements * maxRanks;
export const opNames: readonly OpName[] = [...namedReduceOps, "preMul"];
export const valueKinds = ["mixed", "whole", "wild"] as const;
export const channelCounts = [0, 1, 2, 4, 8, 16, 24] as const;
export const networkSpeeds = [10, 25, 50, 100, 200, 400] as const;

export const defaults: State = {
  collective: "allReduce",
  plan: "ring",
  ranks: 8,
  count: 16_384,
  dtype: "float32",
  op: "sum",
  scalar: 0.3,
  root: 0,
  channels: 0,
  network: namedNetwork,
  values: "mixed",
  seed: 1,
  latency: 250,
  bandwidth: 25,
  rank: 0,
  element: 0,
  time: -1,
  lanes: "ranks",
};

/** Reads a field's text; `undefined` for one that makes no sense. */
interface Field<T> {
  read(text: string): T | undefined;
  readonly needs: string;
}

const fields: { readonly [K in keyof State]: Field<State[K]> } = {
  collective: oneOf(builtCollectives),
  plan: { read: (text) => text, needs: "the name of a plan" },
  ranks: integer(1, maxRanks),
  count: integer(0, maxElements),
  dtype: oneOf(dtypes),
  op: oneOf(opNames),
  scalar: decimal(-Number.MAX_VALUE, Number.MAX_VALUE),
  root: integer(0, maxRanks - 1),
  channels: oneOfNumbers(channelCounts),
  network: oneOfNumbers(networkSpeeds),
  values: oneOf(valueKinds),
  seed: integer(0, 2 ** 32 - 1),
  latency: decimal(0, 1e12),
  bandwidth: decimal(1e-6, 1e9),
  rank: integer(0, maxRanks - 1),
  element: integer(0, maxElements * maxRanks),
  time: integer(-1, Number.MAX_SAFE_INTEGER),
  lanes: oneOf(["ranks", "links"]),
};

export const stateKeys = Object.keys(fields) as readonly (keyof State)[];

/** A state, and what was wrong with the texts it was read from. */
export interface Reading {
  readonly state: State;
  readonly faults: readonly string[];
}

/** Reads the given texts on top of a state; invalid ones change nothing and are reported. */
export function readState(texts: Iterable<readonly [string, string]>, before = defaults): Reading {
  const faults: string[] = [];
  const changes: Partial<Record<keyof State, unknown>> = {};
  for (const [key, text] of texts) {
    if (!Object.hasOwn(fields, key)) continue;
    const name = key as keyof State;
    const value = fields[name].read(text.trim());
    if (value === undefined) faults.push(`${key}: found "${text}", needs ${fields[name].needs}`);
    else changes[name] = value;
  }
  return settled({ ...before, ...changes } as State, faults);
}

/** Only what differs from the defaults, for an address. */
export function writeState(state: State): string {
  const changed = stateKeys.filter((key) => state[key] !== defaults[key]);
  return new URLSearchParams(
    changed.map((key): [string, string] => [key, `${state[key]}`]),
  ).toString();
}

/** Fields that limit each other brought together. */
function settled(state: State, before: readonly string[]): Reading {
  const faults = [...before];
  const { ranks, collective } = state;
  const within = (name: "root" | "rank"): number => {
    if (state[name] < ranks) return state[name];
    faults.push(`${name}: found ${state[name]}, needs a rank below ${ranks}`);
    return 0;
  };
  const plans = planIds(collective, ranks);
  let plan = state.plan;
  if (!plans.includes(plan)) {
    plan = plans[0] ?? "";
    if (state.plan !== defaults.plan) {
      faults.push(
        `plan: ${collective} on ${ranks} ranks has no "${state.plan}", but ${plans.join(", ")}`,
      );
    }
  }
  const root = within("root");
  const most = mostCount({ ...state, root });
  const count = Math.min(state.count, most);
  if (count < state.count) {
    faults.push(
      `count: found ${state.count}, needs at most ${most.toLocaleString("en")} for ${collective} on ${ranks} ranks`,
    );
  }
  return { state: { ...state, plan, root, count, rank: within("rank") }, faults };
}

/** The largest count whose buffers the page holds on all ranks. */
export function mostCount({ collective, ranks, root }: State): number {
  const { inBlocks, outBlocks } = specifications[collective];
  let blocks = 0;
  for (let rank = 0; rank < ranks; rank++) {
    blocks += Math.max(inBlocks(ranks, rank, root), outBlocks(ranks, rank, root));
  }
  return Math.min(maxElements, Math.floor(maxHeld / blocks));
}

function oneOf<T extends string>(names: readonly T[]): Field<T> {
  return {
    read: (text) => names.find((name) => name === text),
    needs: `one of ${names.join(", ")}`,
  };
}

function oneOfNumbers(numbers: readonly number[]): Field<number> {
  return {
    read: (text) => numbers.find((number) => `${number}` === text),
    needs: `one of ${numbers.join(", ")}`,
  };
}

/** Whole numbers, also with K and M for powers of 1024. */
function integer(least: number, most: number): Field<number> {
  return {
    read: (text) => {
      const match = /^(-?\d+)([KM]?)$/i.exec(text.replaceAll(/[,_\s]/g, ""));
      if (match === null) return undefined;
      const unit = { "": 1, K: 1024, M: 1024 ** 2 }[(match[2] ?? "").toUpperCase()] ?? 1;
      const value = Number(match[1]) * unit;
      return value >= least && value <= most ? value : undefined;
    },
    needs: `a whole number from ${least} to ${most.toLocaleString("en")}`,
  };
}

function decimal(least: number, most: number): Field<number> {
  return {
    read: (text) => {
      const value = Number(text);
      return text !== "" && value >= least && value <= most ? value : undefined;
    },
    needs:
      most === Number.MAX_VALUE
        ? "a finite number"
        : `a number from ${least} to ${most.toLocaleString("en")}`,
  };
}
