/**
 * When does each rank finish?
 *
 * A rank takes its steps in order. A message leaves when its sender has come to the step and its send port is free,
 * occupies that port for its length, arrives after the latency, and occupies the receiver's port for its length; so
 * both ends are charged, and eight senders to one receiver take eight times as long as one. Sending does not hold the
 * rank up. Where several lanes share the ports of a rank, halves of steps are taken in the order of time; with one lane
 * a recurrence without any queue gives the same times.
 */
import { runEvents } from "./engine/event-engine.ts";
import { type MessageEvent, MessageLog } from "./engine/message-log.ts";
import type { LinkModel, Timing } from "./engine/model.ts";
import { runRecurrence } from "./engine/recurrence.ts";
import { lanesOfProgram, type Traffic, trafficOf } from "./engine/traffic.ts";
import type { Layout } from "./layout.ts";
import type { Program } from "./program.ts";

/** Evaluates a program from the ranks' starting times; tells about every message, in the order in which they are received. */
export function evaluate(
  program: Program,
  layout: Layout | undefined,
  start: ArrayLike<number>,
  model: LinkModel,
  onMessage?: (event: MessageEvent) => void,
): Timing {
  const traffic = knownTraffic(program, layout);
  const log = onMessage === undefined ? undefined : new MessageLog();
  const run = program.channels === 1 ? runRecurrence : runEvents;
  const timing = run(traffic, model, { start, log });
  if (onMessage !== undefined) log?.each(traffic, model, onMessage);
  return timing;
}

/** Programs and layouts never change, so the traffic of each pair is read off once, however often it is timed. */
const known = new WeakMap<Program, WeakMap<object, Traffic>>();

function knownTraffic(program: Program, layout: Layout | undefined): Traffic {
  let layouts = known.get(program);
  if (layouts === undefined) {
    layouts = new WeakMap();
    known.set(program, layouts);
  }
  let traffic = layouts.get(layout ?? program);
  if (traffic === undefined) {
    traffic = trafficOf(lanesOfProgram(program), layout);
    layouts.set(layout ?? program, traffic);
  }
  return traffic;
}
