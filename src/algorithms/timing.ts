/**
 * The time at which each rank of a program finishes.
 *
 * A rank runs its steps in order. A message leaves when its sender has reached the step and the send port is free.
 * It occupies that port for its length, arrives after the latency, and occupies the receiver's port for its length.
 * Both ends are charged, so eight senders to one receiver take eight times as long as one. Sending does not block the
 * rank. Where several lanes share the ports of a rank, half steps run in the order of time. With one lane a recurrence
 * without a queue gives the same times.
 */
import { runEvents } from "./engine/event-engine.ts";
import { type MessageEvent, MessageLog } from "./engine/message-log.ts";
import type { LinkModel, Timing } from "./engine/model.ts";
import { runRecurrence } from "./engine/recurrence.ts";
import { lanesOfProgram, type Traffic, trafficOf } from "./engine/traffic.ts";
import type { Layout } from "./layout.ts";
import type { Program } from "./program.ts";

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
