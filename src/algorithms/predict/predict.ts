/**
 * Predicted time of a call on a machine of any number of ranks, from sizes only: no data is allocated or moved.
 *
 * The cheapest exact engine is used. One rank, or the ranks of one period of the topology, may represent all. The conditions
 * are a symmetric program, chunks of equal lengths, and no message that waits for a link. The recurrence serves machines on
 * which every pair has its own path, and events serve shared links, ports or slots.
 */
import { type SpecifiedCollective, specifications } from "../../api/collectives/index.ts";
import { assertOptions, invalid, type OptionKinds, textOf } from "../../api/option-kinds.ts";
import type { Algorithm } from "../algorithm.ts";
import { assertCollective } from "../arguments.ts";
import { algorithmsOf } from "../catalogue.ts";
import {
  briefLane,
  foldedTiming,
  type LaneSource,
  type LinkModel,
  maxCredits,
  type OnProgress,
  runEvents,
  runRecurrence,
  type Timing,
  trafficOf,
  writtenLanes,
} from "../engine/index.ts";
import { type Layout, layoutOf } from "../layout.ts";
import { type Link, linkBounds, linkModel } from "../timing.ts";
import { fabricOf, type LinkCost, representativeFabric, type Topology } from "./topologies.ts";

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
 * shared links, can reach. Also for a program in which a rank waits for ever; other faults of an algorithm are not found.
 * @example
 * predict({ collective: "allReduce", algorithm: catalogue.allReduce.ring, ranks: 4096, count: 2 ** 20,
 *   bytesPerElement: 4, link: linkOf({ latencyNs: 1000, gigabytesPerSecond: 50 }) });
 */
export function predict(call: PredictedCall): Prediction {
  assertPredictable(call);
  const { topology, credits } = call;
  const model = modelOf(call);
  const shares = topology !== undefined || credits !== undefined;
  const folded = shares ? undefined : predictBySymmetry(call, model);
  if (folded !== undefined) return folded;
  const source = sourceOf(call);
  const layout = layoutOf(source, { count: call.count });
  if (!shares && source.channels === 1) {
    const traffic = trafficOf(source, layout);
    const timing = runRecurrence(traffic, model, { onProgress: call.onProgress });
    return predictionOf(timing, traffic.messages, "recurrence");
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
  return predictionOf(timing, traffic.messages, "events");
}

/**
 * The ranks of one period of the topology represent all, as long as no message waits for a link. After a wait the order of
 * simultaneous messages matters, and may differ between periods. Then, and without such a symmetry, the result is `undefined`.
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
  return predictionOf(timing, (traffic.messages * ranks) / period, "fold");
}

/** The cost of a message: a port is held for its bytes and for the overhead. */
function modelOf({ link, bytesPerElement, overheadPs = 0 }: PredictedCall): LinkModel {
  const { latency, occupancy } = linkModel(link, bytesPerElement);
  return { latency, occupancy: (elements) => overheadPs + occupancy(elements) };
}

function costOf({ link, hopLatencyPs = 0 }: PredictedCall): LinkCost {
  return { gigabytesPerSecond: link.gigabytesPerSecond, hopLatencyPs };
}

function predictionOf(
  { finished, sentElements }: Timing,
  messages: number,
  engine: Prediction["engine"],
): Prediction {
  return { timePs: largestOf(finished), sentElements: largestOf(sentElements), messages, engine };
}

/** One rank represents all; `undefined` where that is not exact. */
function predictBySymmetry(
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

function largestOf(values: Float64Array): number {
  return values.reduce((a, b) => Math.max(a, b), 0);
}

// Checks the arguments of `predict`: a wrong number would silently give a wrong time, or none.

const kinds: OptionKinds<PredictedCall> = {
  ...{ collective: true, algorithm: "object", ranks: true, root: true, count: true },
  ...{ bytesPerElement: true, link: "object", overheadPs: true, topology: "object" },
  ...{ hopLatencyPs: true, credits: true, onProgress: "function" },
};

/** Limit of times of a link, in picoseconds: sums of times must stay exact integers. */
const maxPs = 1e15;

/** @throws InvalidArgumentError that names the first invalid field. */
function assertPredictable(call: PredictedCall): void {
  assertOptions("predict", call, kinds);
  const { collective, ranks, root = 0, count, bytesPerElement, credits = 1 } = call;
  const { topology, overheadPs = 0, hopLatencyPs = 0 } = call;
  assertCollective("predict", collective);
  whole("ranks", ranks, 1);
  if (specifications[collective].rooted) whole("root", root, 0, ranks - 1);
  whole("count", count, 0);
  whole("bytesPerElement", bytesPerElement, 1);
  whole("credits", credits, 1, maxCredits);
  assertOptions(
    "predict",
    call.link,
    { latencyPs: true, gigabytesPerSecond: true },
    { path: "link" },
  );
  time("link.latencyPs", call.link.latencyPs);
  const { gigabytesPerSecond } = call.link;
  const [least, most] = linkBounds.gigabytesPerSecond;
  const isNumber = typeof gigabytesPerSecond === "number";
  if (!(isNumber && gigabytesPerSecond >= least && gigabytesPerSecond <= most)) {
    const found = textOf(gigabytesPerSecond);
    throw invalid("predict", "link.gigabytesPerSecond", found, `a number in ${least}..${most}`);
  }
  time("overheadPs", overheadPs);
  time("hopLatencyPs", hopLatencyPs);
  assertServes(call);
  if (topology !== undefined && typeof topology.link !== "function") {
    throw invalid("predict", "topology", textOf(topology), "one such as torus([4, 4])");
  }
  if (topology !== undefined && topology.ranks !== ranks) {
    const found = `one of ${textOf(topology.ranks)} ranks`;
    throw invalid("predict", "topology", found, `one of ${ranks}, as ranks says`);
  }
  if (topology !== undefined) whole("topology.period", topology.period, 1, Number.MAX_SAFE_INTEGER);
}

/** Rejects an algorithm that the catalogue has for another collective; an algorithm of the caller is not checked. */
function assertServes({ collective, algorithm }: PredictedCall): void {
  const own = algorithmsOf(collective);
  if (own.includes(algorithm)) return;
  const names = own.map(({ name }) => name).join(", ");
  if (typeof algorithm?.chunksPerBlock !== "function") {
    throw invalid(
      "predict",
      "algorithm",
      textOf(algorithm),
      `an algorithm, such as those of the catalogue: ${names}`,
    );
  }
  const others = Object.keys(specifications) as PredictedCall["collective"][];
  const of = others.find((other) => algorithmsOf(other).includes(algorithm));
  if (of !== undefined) {
    throw invalid(
      "predict",
      "algorithm",
      `${algorithm.name} of ${of}`,
      `one of ${collective}: ${names}`,
    );
  }
}

function whole(field: string, found: unknown, least: number, most = Number.MAX_SAFE_INTEGER): void {
  if (Number.isSafeInteger(found) && Number(found) >= least && Number(found) <= most) return;
  const range = most < Number.MAX_SAFE_INTEGER ? `in ${least}..${most}` : `of at least ${least}`;
  throw invalid("predict", field, textOf(found), `a whole number ${range}`);
}

function time(field: string, found: unknown): void {
  if (Number.isSafeInteger(found) && Number(found) >= 0 && Number(found) <= maxPs) return;
  throw invalid("predict", field, textOf(found), `whole picoseconds from 0 to ${maxPs}`);
}
