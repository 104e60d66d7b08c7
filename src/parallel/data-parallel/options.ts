/** The options of `DataParallel`, with their defaults. */
import {
  assertOptions,
  type Complete,
  invalid,
  type OptionKinds,
  textOf,
} from "../../api/option-kinds.ts";
import { assertCommunicator, assertHasFunctions } from "../argument-checks.ts";
import type { Divided } from "../divided.ts";
import type { Wire } from "./wire.ts";

/** Options of `DataParallel.create`; the same on every rank. */
export interface DataParallelOptions {
  /** Most bytes of gradients in a bucket; 25 MiB when left out. */
  readonly bucketBytes?: number | undefined;
  /**
   * The treatment of a parameter without a gradient on a rank that had samples. `refuse` (when left out) fails the step on
   * every rank with an `UnusedParametersError`; `zeros` takes zeros from that rank.
   */
  readonly unused?: "refuse" | "zeros" | undefined;
  /** Scales the mean gradient down so that its whole norm is at most this; no limit when left out. */
  readonly maxGradientNorm?: number | undefined;
  /**
   * `refuse` (when left out) fails the step when the mean gradient has infinities or NaN, or a norm beyond `float64`. `keep`
   * passes it on without clipping.
   */
  readonly nonFinite?: "refuse" | "keep" | undefined;
  /**
   * The format of gradients in messages. `full`, when left out: unchanged. `float16`, `bfloat16`: rounded, before the sum and
   * at every hop of it. `{ topK: 0.01 }`: the largest hundredth of every rank's bucket; the rest is added to its next one.
   */
  readonly wire?: Wire | undefined;
  /**
   * Multiplies gradients before they are rounded to 16 bits, and divides the sum: a power of two; 1 when left out. Any other is
   * refused where `wire` does not round.
   */
  readonly wireScale?: number | undefined;
  /** The rank with the values and the order of declaration that all ranks start with; 0 when left out. */
  readonly root?: number | undefined;
  /**
   * The ranks over which the model itself is divided, and the parameters that several of them have. The norm is then the whole
   * model's. Parameters of several ranks are summed apart from divided ones, with the same bits on all of them.
   */
  readonly divided?: Divided | undefined;
  /** A clock in milliseconds, for `StepStats.stepMs`; the runtime's when left out. */
  readonly now?: (() => number) | undefined;
}

const kinds: OptionKinds<DataParallelOptions> = {
  ...{ bucketBytes: true, unused: true, maxGradientNorm: true, nonFinite: true, wire: true },
  ...{ wireScale: true, root: true, divided: true, now: "function" },
};

/** The options of a `DataParallel`, complete. */
export type Settings = Omit<Complete<DataParallelOptions>, "divided"> & {
  readonly divided: Divided | undefined;
};

/** Completes and checks the options of a trainer. */
export function settingsOf(
  options: DataParallelOptions,
  size: number,
  trainer = "DataParallel",
): Settings {
  assertOptions(trainer, options, kinds);
  const settings: Settings = {
    bucketBytes: options.bucketBytes ?? 25 * 2 ** 20,
    unused: options.unused ?? "refuse",
    maxGradientNorm: options.maxGradientNorm ?? Number.POSITIVE_INFINITY,
    nonFinite: options.nonFinite ?? "refuse",
    wire: options.wire ?? "full",
    wireScale: options.wireScale ?? 1,
    root: options.root ?? 0,
    divided: options.divided,
    now: options.now ?? (() => performance.now()),
  };
  const { wire, root } = settings;
  if (typeof wire === "object") assertOptions(trainer, wire, { topK: true }, { path: "wire" });
  for (const field of ["bucketBytes", "maxGradientNorm"] as const) {
    refuseUnless(trainer, settings, field, isPositive(settings[field]), "a number above 0");
  }
  oneOf(trainer, settings, "unused", ["refuse", "zeros"]);
  oneOf(trainer, settings, "nonFinite", ["refuse", "keep"]);
  const share = typeof wire === "object" ? wire?.topK : undefined;
  if (share === undefined) oneOf(trainer, settings, "wire", ["full", "float16", "bfloat16"]);
  else {
    const fits = isPositive(share) && share <= 1;
    const needed = "a topK above 0 and at most 1";
    if (!fits) throw invalid(trainer, "wire", `{"topK":${textOf(share)}}`, needed);
  }
  refuseUnless(trainer, settings, "wireScale", isPower(settings.wireScale), "a power of two");
  const scales = wire === "float16" || wire === "bfloat16" || settings.wireScale === 1;
  const halfWire = 'a wire of "float16" or "bfloat16", which it scales for; leave it out otherwise';
  refuseUnless(trainer, settings, "wireScale", scales, halfWire);
  const { divided } = settings;
  if (divided !== undefined) {
    assertHasFunctions(trainer, "divided", divided, ["copies"]);
    assertCommunicator(trainer, divided.comm, "divided.comm");
  }
  const isRank = Number.isInteger(root) && root >= 0 && root < size;
  refuseUnless(trainer, settings, "root", isRank, `a rank from 0 to ${size - 1}`);
  return settings;
}

/** The options that ranks must agree on, as lines of a description. */
export function settingLines(settings: Settings): [string, string][] {
  const { now, divided, ...agreed } = settings;
  const lines = Object.entries(agreed).map(([name, value]): [string, string] => [
    name,
    typeof value === "object" ? JSON.stringify(value) : String(value),
  ]);
  // Ranks must agree on `divided`, because a step makes more calls with it; their parts may be uneven.
  const over = divided === undefined ? "not at all" : `over ${divided.comm.size} ranks`;
  return [...lines, ["divided", over]];
}

function isPositive(value: unknown): value is number {
  return typeof value === "number" && value > 0;
}

/** Compares the exact power, because a logarithm may be rounded to a whole number. */
function isPower(value: unknown): boolean {
  return isPositive(value) && Number.isFinite(value) && 2 ** Math.round(Math.log2(value)) === value;
}

function oneOf(
  trainer: string,
  settings: Settings,
  field: keyof Settings,
  allowed: readonly string[],
): void {
  const holds = allowed.includes(settings[field] as string);
  refuseUnless(trainer, settings, field, holds, allowed.map((each) => `"${each}"`).join(" or "));
}

function refuseUnless(
  trainer: string,
  settings: Settings,
  field: keyof Settings,
  holds: boolean,
  needed: string,
): void {
  if (!holds) throw invalid(trainer, field, textOf(settings[field]), needed);
}
