/**
 * The breakpoints of NCCL's plans: all counts of a range as few stretches, in each of which one cut of the elements holds.
 *
 * Each breakpoint is the end of a stretch on which a monotone function is constant, found by bisection. Nothing is sampled:
 * - Between two corrections of the tree no predicted time falls with the size, also after rounding. So an entry wins a whole
 *   range if its time at the end is below those of all others at the start; a range without such an entry is halved.
 * - The budget of channels never falls with the count. For one budget the cells of a part never fall, and for those neither does
 *   the number of parts.
 * - In a Ring all-reduce the last part has whole loops, and one that is shorter, with chunks that never shrink as it grows.
 *
 * Under one cut, the plan of a smaller count is that of the largest one, without its last elements. `ncclPlan` gives it.
 */

import { bytesOf } from "../../api/dtype.ts";
import { UnsupportedError } from "../../api/errors.ts";
import {
  blockThreads,
  type Choice,
  modelBytes,
  type PricedChoice,
  pricedChoices,
  risingUntil,
} from "../nccl/choice.ts";
import { seesOrder } from "../nccl/differing.ts";
import type { FoldOrder } from "../nccl/fold-order.ts";
import { type Cut, channelOrders, chunkElements, cutOf, lastChunk } from "../nccl/pieces.ts";
import { hopRounding, isScaled, partitionQuestion, planCall } from "../nccl/plan.ts";
import type { NcclPlan, PlanRequest } from "../nccl/plan-types.ts";
import { blocksOf, type ResolvedSettings, resolveSettings, rulesOf } from "../nccl/rules.ts";
import { type ChannelPaths, channelsOf } from "../nccl/topology.ts";
import { classOf, type Segment, segmentsOf } from "./fold-class.ts";

/** Up to so many ranks PAT has one order, whatever the size. */
const patRanks = 32;

/** A call of any count. */
export type CallRequest = Omit<PlanRequest, "count" | "symmetric">;

/** Counts: multiples of `row` from `from` to `to`, both of which are such. */
export interface Counts {
  readonly from: number;
  readonly to: number;
  readonly row: number;
}

/** A range of counts with one algorithm and protocol. */
export interface ChoiceStretch extends Choice {
  readonly from: number;
  readonly to: number;
}

/** A range of counts with plans that agree on all elements they share. */
export interface Stretch extends Choice {
  readonly from: number;
  readonly to: number;
  /** Words of the partition and of the cut; none if all elements of a block have one fold. */
  readonly words: readonly PlanWord[];
  /** The classes of the elements of a block, for the largest count. */
  segments(block: number, present: number): readonly Segment[];
}

/** Facts that decide plans, as one word: equal words with equal counts mean equal plans, up to the lesser `to`. */
export interface PlanWord {
  readonly word: string;
  readonly to: number;
}

/** Counts with one cut. */
interface KnownCut extends PlanWord {
  readonly from: number;
  /** First element of the last part. */
  readonly start: number;
  /** Elements of a whole loop, where chunks decide the order. */
  readonly loop: number | undefined;
}

/** Largest number from `from` to `to` with the value of `from`, of a function that never falls. */
function lastEqual(from: number, to: number, value: (at: number) => number): number {
  const wanted = value(from);
  if (value(to) === wanted) return to;
  let [low, high] = [from, to];
  for (let step = 1; low + step < high; step *= 2) {
    if (value(low + step) === wanted) low += step;
    else {
      high = low + step;
      break;
    }
  }
  while (high - low > 1) {
    const middle = low + Math.floor((high - low) / 2);
    if (value(middle) === wanted) low = middle;
    else high = middle;
  }
  return low;
}

/** True if an algorithm and protocol serve the calls; otherwise NCCL refuses them. */
export function isServed(request: CallRequest, count: number): boolean {
  const channels = channelsOf(request.topology, resolveSettings(request.settings)).length;
  return pricedAt(request, channels, count).length > 0;
}

function pricedAt(request: CallRequest, channels: number, count: number): PricedChoice[] {
  const { collective, topology, dtype, op, forced } = request;
  const scales = op !== undefined && isScaled(op);
  const size = modelBytes(collective, topology.ranks, count * bytesOf(dtype));
  return pricedChoices({ collective, topology, dtype, channels, scales, size, forced });
}

/** All calls of one kind that differ in their count. */
export class Calls {
  readonly request: CallRequest;
  readonly counts: Counts;
  /** Output blocks with folds of their own. */
  readonly blocks: number;
  readonly choices: readonly ChoiceStretch[];
  readonly #settings: ResolvedSettings;
  readonly #channels: readonly ChannelPaths[];
  readonly #whole = new Map<ChoiceStretch, readonly string[] | undefined>();
  readonly #partitions = new Map<ChoiceStretch, PlanWord>();
  /** The cut of the last stretch: the next one often has it too. */
  #last: KnownCut | undefined;

  constructor(request: CallRequest, counts: Counts) {
    this.request = request;
    this.counts = counts;
    const { collective, topology } = request;
    const { ranks } = topology;
    this.blocks = blocksOf(collective, ranks);
    this.#settings = resolveSettings(request.settings);
    this.#channels = channelsOf(topology, this.#settings);
    this.choices = ranks === 1 ? [] : this.#choiceStretches();
  }

  /** False where the order of PAT follows from the size. */
  get isDecidable(): boolean {
    const { collective, topology } = this.request;
    if (collective !== "reduceScatter" || topology.ranks <= patRanks) return true;
    return this.choices.every(({ algorithm }) => algorithm !== "PAT");
  }

  /** NCCL's plan for one count. */
  plan(count: number): NcclPlan {
    return planCall({ ...this.request, count });
  }

  /** The most channels of a call in a stretch. */
  mostChannels(choice: ChoiceStretch): number {
    const { budget, channels } = this.#question(choice.to, choice);
    // Rounding can require one more than the budget.
    return Math.min(channels, budget + 1);
  }

  /** The stretch that begins with a count. */
  at(count: number): Stretch {
    const choice = this.choices.find(({ to }) => count <= to);
    if (choice === undefined) return this.#copies();
    if (this.wholeFolds(choice) !== undefined) {
      const segments = (block: number, present: number): Segment[] => [
        {
          from: 0,
          to: Number.POSITIVE_INFINITY,
          fold: this.#fold(choice, block, present) as string,
          origin: 0,
        },
      ];
      return { ...choice, from: count, words: [], segments };
    }
    return this.#cutStretch(count, choice);
  }

  /** The class of all elements, by block, of calls with one choice; `undefined` where elements of a block differ. */
  wholeFolds(choice: ChoiceStretch): readonly string[] | undefined {
    if (this.#whole.has(choice)) return this.#whole.get(choice);
    const { dtype, op, topology } = this.request;
    const isByPosition = seesOrder({ dtype, op }) && this.#rounding(choice) === "byPosition";
    const folds: string[] = [];
    for (let block = 0; block < this.blocks && !isByPosition; block++) {
      const fold = this.#fold(choice, block, topology.ranks);
      if (fold === undefined) break;
      folds.push(fold);
    }
    const whole = folds.length === this.blocks ? folds : undefined;
    this.#whole.set(choice, whole);
    return whole;
  }

  /** The class of all elements of a block; `undefined` where two differ. */
  #fold(choice: ChoiceStretch, block: number, present: number): string | undefined {
    const { dtype, op } = this.request;
    const rounding = this.#rounding(choice);
    const facts = { dtype, op, present };
    const each = rounding === "byPosition" ? "fused" : rounding;
    let fold: string | undefined;
    for (const order of this.#orders(choice, block)) {
      const own = classOf(facts, order, each);
      if (fold !== undefined && fold !== own) return undefined;
      fold = own;
    }
    return fold;
  }

  #orders(choice: ChoiceStretch, block: number): readonly FoldOrder[] {
    const { collective, root = -1, topology } = this.request;
    const { algorithm } = choice;
    if (algorithm !== "PAT" || collective !== "reduceScatter") {
      const used = this.#channels.slice(0, this.mostChannels(choice));
      return used.flatMap((paths) => channelOrders({ collective, algorithm, root }, paths, block));
    }
    if (!this.isDecidable) {
      throw new UnsupportedError(
        {
          headline: `invariance: the order of PAT on ${topology.ranks} ranks follows from the size`,
          hint: `exclude PAT: NCCL_ALGO=reducescatter:ring, or take at most ${patRanks} ranks`,
        },
        { field: "ranks", collective },
      );
    }
    const { pieces } = this.plan(choice.from);
    return pieces.filter((piece) => piece.block === block).map(({ order }) => order);
  }

  #rounding({ protocol }: Choice): ReturnType<typeof hopRounding> {
    const { dtype, op } = this.request;
    return op === undefined ? "none" : hopRounding(dtype, op, protocol);
  }

  /** Calls of one rank. */
  #copies(): Stretch {
    const { from, to } = this.counts;
    const { dtype, op } = this.request;
    const segments = (): Segment[] => {
      const fold = classOf({ dtype, op, present: 1 }, [0], "none");
      return [{ from: 0, to: Number.POSITIVE_INFINITY, fold, origin: 0 }];
    };
    const choice = { algorithm: "Ring", protocol: "Simple" } as const;
    return { ...choice, from, to, words: [], segments };
  }

  #cutStretch(count: number, choice: ChoiceStretch): Stretch {
    const { algorithm, protocol } = choice;
    const known = this.#last;
    const isKnown = known !== undefined && known.from <= count && count <= known.to;
    const cut = isKnown ? known : this.#cut(count, choice);
    this.#last = cut;
    const to = cut.loop === undefined ? cut.to : this.#lastPartTo(count, cut, cut.loop);
    let plan: NcclPlan | undefined;
    const segments = (block: number, present: number): Segment[] => {
      plan ??= this.plan(to);
      return segmentsOf(plan, block, present);
    };
    const words = [this.#partition(choice), cut];
    return { algorithm, protocol, from: count, to, words, segments };
  }

  /** The facts that decide the cut of every count with one choice. */
  #partition(choice: ChoiceStretch): PlanWord {
    const { algorithm, protocol, to } = choice;
    const { topology, version } = this.request;
    const settings = this.#settings;
    const { buffSize, llBuffSize, ll128BuffSize } = settings;
    const { minimumTraffic, trafficStep } = rulesOf(version);
    const known = this.#partitions.get(choice) ?? {
      word: JSON.stringify([
        ...[algorithm, protocol, minimumTraffic, trafficStep, buffSize, llBuffSize, ll128BuffSize],
        ...[topology.nodes, this.#channels],
        blockThreads({ algorithm, protocol, topology, threads: settings }),
      ]),
      to,
    };
    this.#partitions.set(choice, known);
    return known;
  }

  #cut(count: number, choice: ChoiceStretch): KnownCut {
    const { request } = this;
    const { topology } = request;
    const { algorithm, protocol } = choice;
    const cut = (at: number): Cut => cutOf(this.#question(at, choice));
    const budgetTo = lastEqual(count, choice.to, (at) => this.#question(at, choice).budget);
    const cellsTo = lastEqual(count, budgetTo, (at) => cut(at).cellsPerPart);
    const to = lastEqual(count, cellsTo, (at) => cut(at).used);
    const { used, length } = cut(count);
    const start = used === 1 ? 0 : (used - 1) * length;
    const parts = used === 1 ? [1] : [used, length];
    const { minChannels, maxChannels, threads, ll128Threads, ...buffers } = this.#settings;
    const paths = this.#channels.slice(0, used);
    const word = JSON.stringify([algorithm, protocol, topology.nodes, parts, paths, buffers]);
    const isRing = request.collective === "allReduce" && algorithm === "Ring";
    if (!isRing) return { from: count, to, word, start, loop: undefined };
    const call = { ...this.#question(count, choice), algorithm, topology, used };
    const size = this.#size(count);
    const chunk = chunkElements({ ...call, settings: this.#settings, size }, count - start);
    return { from: count, to, word, start, loop: topology.ranks * chunk };
  }

  /** Largest count of a cut with the same chunks in the last part. */
  #lastPartTo(count: number, { start, to }: KnownCut, loop: number): number {
    const { topology, dtype } = this.request;
    const loops = Math.floor((count - start) / loop);
    const first = start + loops * loop;
    // Beyond the loop it would be larger than a whole one's, so that the stretch ends with the loop too.
    const chunk = (at: number): number => lastChunk(at - first, topology.ranks, bytesOf(dtype));
    return lastEqual(count, to, chunk);
  }

  #question(count: number, choice: Choice): ReturnType<typeof partitionQuestion> {
    const facts = { settings: this.#settings, choice, channels: this.#channels.length };
    return partitionQuestion({ ...this.request, count }, facts);
  }

  #size(count: number): number {
    const { collective, topology, dtype } = this.request;
    return modelBytes(collective, topology.ranks, count * bytesOf(dtype));
  }

  #priced(count: number): PricedChoice[] {
    return pricedAt(this.request, this.#channels.length, count);
  }

  #choiceStretches(): ChoiceStretch[] {
    const { from, to } = this.counts;
    // Throws for settings without an entry, as a plan does.
    if (this.#priced(from).length === 0) this.plan(from);
    const stretches: ChoiceStretch[] = [];
    for (let start = from; start <= to; ) {
      const end = lastEqual(start, to, (at) => risingUntil(this.#size(at)));
      this.#choose(start, end, stretches);
      start = end + 1;
    }
    return stretches;
  }

  /** Appends the choices of a range on which no entry's time falls. */
  #choose(from: number, to: number, stretches: ChoiceStretch[]): void {
    const least = this.#priced(from);
    const most = this.#priced(to);
    const best = least.reduce((a, b) => (b.time < a.time ? b : a));
    const at = least.indexOf(best);
    const { time } = most[at] as PricedChoice;
    // NCCL takes the first of equal entries.
    const wins = least.every(
      (each, i) => i === at || (i < at ? time < each.time : time <= each.time),
    );
    if (wins || from === to) {
      const { algorithm, protocol } = best;
      const last = stretches.at(-1);
      if (last?.algorithm === algorithm && last.protocol === protocol) {
        stretches[stretches.length - 1] = { ...last, to };
      } else stretches.push({ algorithm, protocol, from, to });
      return;
    }
    const middle = from + Math.floor((to - from) / 2);
    this.#choose(from, middle, stretches);
    this.#choose(middle + 1, to, stretches);
  }
}
