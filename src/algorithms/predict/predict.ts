/**
 * Predicted time of a call on a machine of any number of ranks, from sizes only: no data is allocated or moved.
 *
 * The cheapest exact engine is used. One rank, or the ranks of one period of the topology, represent all under three
 * conditions: a symmetric program, chunks of equal lengths, and no message that waits for a link. The recurrence serves
 * machines on which every pair has its own path, and events serve shared links, ports or slots.
 */
import { type SpecifiedCollective, specifications } from "../../api/collectives/index.ts";
import type { Algorithm } from "../algorithm.ts";
import {
  briefLane,
  foldedTiming,
  type LaneSource,
  type LinkModel,
  type OnProgress,
  runEvents,
  runRecurrence,
  type Timing,
  trafficOf,
  writtenLanes,
} from "../engine/index.ts";
import { type Layout, layoutOf } from "../layout.ts";
import { type Link, linkModel } from "../plans/link.ts";
import { assertPredictable } from "./check.ts";
import { fabricOf, type LinkCost, representativeFabric, type Topology } from "./topology.ts";

/** A call on a machine. */
export interface PredictedCall {
  readonly collective: SpecifiedCollective;
  readonly algorithm: Algorithm;
  readonly ranks: number;
  /** 0 when left out; counts only where the collective has one. */
  readonly root?: number | undefined;
  /** Elements as NCCL counts them; per peer for an all-to-all. */
  readonly count: number;
  readonly bytesPerElement: number;
  /** Every rank's ports, and the latency of a path without shared links. */
  readonly link: Link;
  /** Time for which each message holds a port beside its bytes; 0 when left out. */
  readonly overheadPs?: number | undefined;
  /** Links that ranks share; every pair has its own path when left out. */
  readonly topology?: Topology | undefined;
  /** Time from the start of a shared link to its end; 0 when left out. */
  readonly hopLatencyPs?: number | undefined;
  /** Messages between two lanes that are sent but not received before the sender waits; unlimited when left out. */
  readonly credits?: number | undefined;
  readonly onProgress?: OnProgress | undefined;
}

/** A prediction, in picoseconds of virtual time. */
export interface Prediction {
  /** Time at which the last rank is done. */
  readonly timePs: number;
  /** Elements that the busiest rank sends. */
  readonly sentElements: number;
  /** Messages of all ranks. */
  readonly messages: number;
  /** The engine that was used. */
  readonly engine: "fold" | "recurrence" | "events";
}

/**
 * Predicts the time of a call; all ranks start together.
 *
 * @throws InvalidArgumentError for an invalid call; `field` names the wrong field.
 * @throws UnsupportedError for traffic of more messages than the limit, which only programs without symmetry, or on
 * shared links, can reach.
 * @example
 * predict({ collective: "allReduce", algorithm: catalogue.allReduce.ring, ranks: 4096, count: 2 ** 20,
 *   bytesPerElement: 4, link: linkOf({ latencyNs: 1000, gigabytesPerSecond: 50 }) });
 */
export function predict(call: PredictedCall): Prediction {
  assertPredictable(call);
  const { topology, credits } = call;
  const model = modelOf(call);
  const shares = topology !== undefined || credits !== undefined;
  const folded = shares ? undefined : fold(call, model);
  if (folded !== undefined) return folded;
  const source = sourceOf(call);
  const layout = layoutOf(source, { count: call.count });
  if (!shares && source.channels === 1) {
    const traffic = trafficOf(source, layout);
    const timing = runRecurrence(traffic, model, { onProgress: call.onProgress });
    return answer(timing, traffic.messages, "recurrence");
  }
  return foldedEvents(call, source, layout) ?? events(call, source, layout);
}

function sourceOf({ collective, algorithm, ranks, root = 0 }: PredictedCall): LaneSource {
  const { rooted } = specifications[collective];
  return writtenLanes(collective, algorithm, ranks, rooted ? root : -1);
}

function events(call: PredictedCall, source: LaneSource, layout: Layout): Prediction {
  const { bytesPerElement, topology, credits, onProgress } = call;
  const traffic = trafficOf(source, layout);
  const model = modelOf(call);
  const fabric = topology && fabricOf(topology, costOf(call), bytesPerElement);
  const timing = runEvents(traffic, model, { fabric, credits, onProgress });
  return answer(timing, traffic.messages, "events");
}

/**
 * The ranks of one period of the topology represent all, as long as no message waits for a link. After a wait the order
 * of simultaneous messages matters, and may differ between periods. `undefined` then, and without such a symmetry.
 */
function foldedEvents(
  call: PredictedCall,
  source: LaneSource,
  layout: Layout,
): Prediction | undefined {
  const { algorithm, ranks, count, bytesPerElement, topology, credits, onProgress } = call;
  const symmetry = algorithm.symmetry?.(ranks);
  if (topology === undefined || symmetry === undefined) return undefined;
  const { period } = topology;
  const even = count % source.chunksPerBlock === 0 && ranks % period === 0;
  const fits = symmetry === "rotation" || topology.flips;
  if (!even || !fits || period === ranks || source.channels > 1) return undefined;
  const traffic = trafficOf(source, layout, { period, symmetry });
  const fabric = representativeFabric(fabricOf(topology, costOf(call), bytesPerElement), topology);
  const model = modelOf(call);
  const timing = runEvents(traffic, model, { fabric, credits, onProgress });
  if (timing.waited > 0) return undefined;
  return answer(timing, (traffic.messages * ranks) / period, "fold");
}

/** The cost of a message: a port is held for its bytes and for the overhead. */
function modelOf({ link, bytesPerElement, overheadPs = 0 }: PredictedCall): LinkModel {
  const { latency, occupancy } = linkModel(link, bytesPerElement);
  return { latency, occupancy: (elements) => overheadPs + occupancy(elements) };
}

function costOf({ link, hopLatencyPs = 0 }: PredictedCall): LinkCost {
  return { gigabytesPerSecond: link.gigabytesPerSecond, hopLatencyPs };
}

function answer(
  { finished, sentElements }: Timing,
  messages: number,
  engine: Prediction["engine"],
): Prediction {
  return { timePs: most(finished), sentElements: most(sentElements), messages, engine };
}

/** One rank represents all; `undefined` where that is not exact. */
function fold(
  { collective, algorithm, ranks, count }: PredictedCall,
  model: LinkModel,
): Prediction | undefined {
  const pieces = algorithm.chunksPerBlock(ranks);
  if (count % pieces !== 0) return undefined;
  const lane = briefLane(collective, algorithm, ranks);
  if (lane === undefined) return undefined;
  const { finished, sentElements, messages } = foldedTiming(lane, count / pieces, model);
  return { timePs: finished, sentElements, messages: ranks * messages, engine: "fold" };
}

function most(values: Float64Array): number {
  return values.reduce((a, b) => Math.max(a, b), 0);
}
