/**
 * How long would a call take, on so many ranks of such a machine? Sizes only: nothing is allocated, nothing moves.
 *
 * The cheapest engine that is exact answers: one rank for all, or those of one period of the wiring, where the program is
 * symmetric, its chunks are equally long and nobody is in anybody's way; the recurrence where every pair has a way of its
 * own; events where links, ports or slots are shared.
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
import { fabricOf, foldedFabric, type LinkCost, type Topology } from "./topology.ts";

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
  /** Every rank's ports, and the latency of a way without shared links. */
  readonly link: Link;
  /** How long each message holds a port beside its bytes; 0 when left out. */
  readonly overheadPs?: number | undefined;
  /** Links that ranks share; every pair has its own way when left out. */
  readonly topology?: Topology | undefined;
  /** From the begin of a shared link to its end; 0 when left out. */
  readonly hopLatencyPs?: number | undefined;
  /** Messages that may be under way or not yet taken between two lanes; any number when left out. */
  readonly credits?: number | undefined;
  readonly onProgress?: OnProgress | undefined;
}

/** What was found, in picoseconds of virtual time. */
export interface Prediction {
  /** When the last rank is done. */
  readonly timePs: number;
  /** Elements that the busiest rank sends. */
  readonly sentElements: number;
  /** Messages of all ranks. */
  readonly messages: number;
  /** Who answered. */
  readonly engine: "fold" | "recurrence" | "events";
}

/**
 * Predicts the time of a call whose ranks start together.
 *
 * @throws InvalidArgumentError for a call that cannot be meant; `field` names what is wrong with it.
 * @throws UnsupportedError for traffic of more messages than are kept, which only programs without symmetry, or on
 * shared links, have.
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
 * By the ranks of one period of the wiring for all. They are alike as long as no message finds a link in use: from there
 * on the order of messages that come at the same time matters, which need not be alike. `undefined` then, and where
 * there is no such symmetry.
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
  const fabric = foldedFabric(fabricOf(topology, costOf(call), bytesPerElement), topology);
  const model = modelOf(call);
  const timing = runEvents(traffic, model, { fabric, credits, onProgress });
  if (timing.waited > 0) return undefined;
  return answer(timing, (traffic.messages * ranks) / period, "fold");
}

/** Ports that a message holds for its bytes, and for a while of its own. */
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

/** By one rank for all; `undefined` where that would not be exact. */
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
