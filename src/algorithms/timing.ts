/**
 * The time at which each rank of a program finishes, on links of some latency and bandwidth.
 *
 * A rank runs its steps in order. A message leaves when its sender has reached the step and the send port is free.
 * It occupies that port for its length, arrives after the latency, and occupies the receiver's port for its length.
 * Both ends are charged, so eight senders to one receiver take eight times as long as one. Sending does not block the
 * rank. Where several lanes share the ports of a rank, half steps run in the order of time. With one lane a recurrence
 * without a queue gives the same times.
 */
import { assertOptions, invalid, textOf } from "../api/option-kinds.ts";
import { assertAmount, assertArgument, assertPositive, hasFields } from "./arguments.ts";
import { runEvents } from "./engine/event-engine.ts";
import { type MessageEvent, MessageLog } from "./engine/message-log.ts";
import type { LinkModel, Timing } from "./engine/model.ts";
import { runRecurrence } from "./engine/recurrence.ts";
import { lanesOfProgram, type Traffic, trafficOf } from "./engine/traffic.ts";
import type { Layout } from "./layout.ts";
import { assertProgram, type Program } from "./program.ts";

/** Evaluates a program from the ranks' starting times; `onMessage` gets every message, in the order of reception. */
export function evaluate(
  program: Program,
  layout: Layout | undefined,
  start: ArrayLike<number>,
  model: LinkModel,
  onMessage?: (event: MessageEvent) => void,
): Timing {
  const traffic = cachedTraffic(program, layout);
  const log = onMessage === undefined ? undefined : new MessageLog();
  const run = program.channels === 1 ? runRecurrence : runEvents;
  const timing = run(traffic, model, { start, log });
  if (onMessage !== undefined) log?.each(traffic, model, onMessage);
  return timing;
}

/** Programs and layouts are immutable, so the traffic of each pair is computed once. */
const trafficCache = new WeakMap<Program, WeakMap<object, Traffic>>();

function cachedTraffic(program: Program, layout: Layout | undefined): Traffic {
  let layouts = trafficCache.get(program);
  if (layouts === undefined) {
    assertProgram("evaluate", program);
    layouts = new WeakMap();
    trafficCache.set(program, layouts);
  }
  let traffic = layouts.get(layout ?? program);
  if (traffic === undefined) {
    traffic = trafficOf(lanesOfProgram(program), layout);
    layouts.set(layout ?? program, traffic);
  }
  return traffic;
}

/** The connection of simulated ranks: the same for every pair, each rank with one port out and one in. */
export interface LinkOptions {
  /** Latency from one rank to another, in nanoseconds; 1,000 when left out. */
  readonly latencyNs?: number | undefined;
  /** Bandwidth of a port in each direction, in 10⁹ bytes a second; 400 when left out. */
  readonly gigabytesPerSecond?: number | undefined;
}

/** A checked link. */
export interface Link {
  readonly latencyPs: number;
  readonly gigabytesPerSecond: number;
}

/** Checks link options and fills in the defaults. `subject` begins the errors. */
export function linkOf(options: LinkOptions = {}, subject = "sim"): Link {
  const names = { latencyNs: true, gigabytesPerSecond: true } as const;
  assertOptions(subject, options, names, { path: "link" });
  const { latencyNs = 1000, gigabytesPerSecond = 400 } = options;
  within("latencyNs", latencyNs, subject);
  within("gigabytesPerSecond", gigabytesPerSecond, subject);
  return { latencyPs: Math.round(latencyNs * 1000), gigabytesPerSecond };
}

/**
 * Least and most of each option. Sums of times are exact up to 2^53 picoseconds, 2.5 hours; at the slowest link a gigabyte takes
 * days.
 */
export const linkBounds = { latencyNs: [0, 1e12], gigabytesPerSecond: [1e-6, 1e9] } as const;

function within(field: keyof typeof linkBounds, value: number, subject: string): void {
  const [least, most] = linkBounds[field];
  if (typeof value === "number" && value >= least && value <= most) return;
  throw invalid(subject, `link.${field}`, textOf(value), `a number in ${least}..${most}`);
}

/** The cost of a message of a dtype on a link. A port is held for a whole number of picoseconds, rounded up. */
export function linkModel(link: Link, bytesPerElement: number): LinkModel {
  const isLink = hasFields(link, { latencyPs: "number", gigabytesPerSecond: "number" });
  assertArgument(isLink, "linkModel", "link", link, "a link, as linkOf gives it");
  assertAmount("linkModel", "link.latencyPs", link.latencyPs);
  assertPositive("linkModel", "link.gigabytesPerSecond", link.gigabytesPerSecond);
  assertAmount("linkModel", "bytesPerElement", bytesPerElement);
  const psPerElement = (bytesPerElement * 1000) / link.gigabytesPerSecond;
  return { latency: link.latencyPs, occupancy: (elements) => Math.ceil(elements * psPerElement) };
}
