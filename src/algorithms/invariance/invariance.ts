/**
 * Invariance: do the bits of a call depend on anything but its contributions? Decided by proof over the breakpoints of NCCL's
 * plans (`stretches.ts`), for every count of a range and every element.
 *
 * Each question varies one thing and keeps the contributions of an element. An answer is either proved for all counts, or comes
 * with the smallest count that differs, both folds, and contributions for which the bits differ.
 */

import { dtypeInfo } from "../../api/dtype.ts";
import { countText } from "../../api/error-text.ts";
import { assertArgument } from "../arguments.ts";
import { seesOrder } from "../nccl/differing.ts";
import { type NcclVariables, settingOf } from "../nccl/environment.ts";
import { type ElementRounding, elementPlan, operatorSign } from "../nccl/explain.ts";
import { type FoldOrder, orderText } from "../nccl/fold-order.ts";
import type { NcclPlan, Piece } from "../nccl/plan-types.ts";
import { channelLimit, type NcclAlgorithm, type NcclProtocol, protocols } from "../nccl/rules.ts";
import { cheapestSettings, type PricedSettings } from "./cheapest.ts";
import { acrossCounts, acrossPlaces, betweenCalls, type Pair, type Place } from "./differences.ts";
import {
  type Dependence,
  type InvarianceQuestion,
  type Resolved,
  requestOf,
  resolveQuestion,
} from "./question.ts";
import { type CallRequest, Calls, isServed } from "./stretches.ts";
import { type Witness, witnessOf } from "./witness.ts";

/** One of two folds that differ. */
export interface DifferentFold {
  /** Difference of this call from the other, such as `3 channels`. */
  readonly call: string;
  /** NCCL's variables of this call. */
  readonly variables: NcclVariables;
  readonly ranks: number;
  readonly count: number;
  /** Output block: the rank of a reduce-scatter, otherwise 0. */
  readonly block: number;
  readonly element: number;
  readonly algorithm: NcclPlan["algorithm"];
  readonly protocol: NcclPlan["protocol"];
  readonly channels: number;
  readonly channel: number;
  readonly loop: number;
  readonly chunk: number;
  readonly order: FoldOrder;
  readonly rounding: ElementRounding;
}

/** The answer to one question. */
export interface Answer {
  readonly question: Dependence;
  readonly isInvariant: boolean;
  readonly reason: string;
  /** Where it depends: the folds of the smallest count that differs. */
  readonly folds?: readonly [DifferentFold, DifferentFold];
  /** Contributions for which the bits differ; left out where none of those tried do. */
  readonly witness?: Witness;
}

/** Counts with one algorithm and protocol. */
export interface FoldRange {
  readonly ranks: number;
  readonly from: number;
  readonly to: number;
  readonly algorithm: NcclAlgorithm | "Copy";
  readonly protocol: NcclProtocol | undefined;
  /** The most channels of these counts. */
  readonly channels: number;
  /** The fold of every element, by output block; `undefined` where elements differ. */
  readonly folds: readonly FoldOrder[] | undefined;
}

/** All answers about a call. */
export interface Invariance {
  readonly version: string;
  readonly topology: string;
  readonly counts: { readonly from: number; readonly to: number; readonly row: number };
  readonly answers: readonly Answer[];
  /** Basis of the proof: the algorithms, protocols and folds of all counts. */
  readonly ranges: readonly FoldRange[];
  /** Conditions of the answers. */
  readonly provided: readonly string[];
  /**
   * Settings under which neither size nor position matters, with the fewest variables, cheapest first. Computed on first use, which
   * takes longer than the answers.
   */
  readonly cheapest: readonly PricedSettings[];
}

/**
 * Decides what the bits of a call depend on.
 *
 * @throws InvalidArgumentError for a wrong question, and UnsupportedError for versions, worlds and settings without a known plan.
 */
export function invariance(question: InvarianceQuestion): Invariance {
  const resolved = resolveQuestion(question);
  const { counts, ranks, op } = resolved;
  const calls = ranks.map((each) => new Calls(requestOf(resolved, each), counts));
  const [first] = calls as [Calls];
  const answers = answersOf(resolved, calls);
  let cheapest: PricedSettings[] | undefined;
  return {
    version: first.plan(counts.from).version,
    topology: first.request.topology.name,
    counts,
    answers,
    ranges: calls.flatMap(rangesOf),
    provided: conditionsOf(resolved),
    get cheapest() {
      cheapest ??= op === undefined ? [] : cheapestSettings(resolved);
      return cheapest;
    },
  };
}

/** The answers in the order of the questions. Protocols come first: LL has the smallest chunks, and refuses counts that are too large. */
function answersOf(resolved: Resolved, calls: readonly Calls[]): Answer[] {
  const { ask } = resolved;
  const isProtocol = (name: Dependence): boolean => name === "protocol";
  const [protocol] = ask.filter(isProtocol).map((name) => answerOf(name, resolved, calls));
  return ask.map((name) => (isProtocol(name) && protocol) || answerOf(name, resolved, calls));
}

function answerOf(question: Dependence, resolved: Resolved, calls: readonly Calls[]): Answer {
  const { op } = resolved;
  if (question === "ranks" && op === "avg") {
    return { question, isInvariant: false, reason: "an average divides by the number of ranks" };
  }
  if (!seesOrder(resolved)) return { question, isInvariant: true, reason: orderless(resolved) };
  const found = firstPair(question, resolved, calls);
  if (found === undefined) {
    return { question, isInvariant: true, reason: invariantReasons[question] };
  }
  const { pair, kinds } = found;
  const folds = [differentFold(pair[0], kinds[0]), differentFold(pair[1], kinds[1])] as const;
  const witness = op === undefined ? undefined : witnessFor(resolved, folds);
  const reason = dependentReasons[question];
  return { question, isInvariant: false, reason, folds, ...(witness && { witness }) };
}

const invariantReasons: Readonly<Record<Dependence, string>> = {
  size: "an element has one fold under every count",
  position: "all places of a call have one fold",
  channels: `every number of channels from 1 to ${channelLimit} folds alike`,
  protocol: "every protocol folds alike",
  ranks: "ranks that contribute the neutral element leave the fold of the others as it is",
  hosts: "every machine folds alike",
  version: "every version folds alike",
};

const dependentReasons: Readonly<Record<Dependence, string>> = {
  size: "one element is folded differently under two counts",
  position: "two places of one call are folded differently",
  channels: "one element is folded differently under another number of channels",
  protocol: "one element is folded differently under another protocol",
  ranks: "the common ranks are folded differently in a larger group",
  hosts: "one element is folded differently on another machine",
  version: "one element is folded differently by another version",
};

/** The reason of calls with bits that no order changes. */
function orderless({ dtype, op }: Resolved): string {
  if (op === undefined) return "contributions are copied";
  if (dtypeInfo[dtype].kind !== "float") return "integers give the same bits in every order";
  return "minimum and maximum give the same bits in every order";
}

/** A kind of call: its difference from the other, and its variables. */
interface CallKind {
  readonly call: string;
  readonly variables: NcclVariables;
}

interface Found {
  readonly pair: Pair;
  readonly kinds: readonly [CallKind, CallKind];
}

function firstPair(
  question: Dependence,
  resolved: Resolved,
  calls: readonly Calls[],
): Found | undefined {
  const { variables } = resolved;
  const asAsked = (call: string): CallKind => ({ call, variables });
  if (question === "ranks") {
    for (const [at, more] of calls.slice(1).entries()) {
      const fewer = calls[at] as Calls;
      const pair = betweenCalls(fewer, more);
      if (pair !== undefined)
        return { pair, kinds: [asAsked(ranksText(fewer)), asAsked(ranksText(more))] };
    }
    return undefined;
  }
  for (const each of calls) {
    if (question === "size" || question === "position") {
      const pair = question === "size" ? acrossCounts(each) : acrossPlaces(each);
      const [one, other] = ownLabels[question];
      if (pair !== undefined) return { pair, kinds: [asAsked(one), asAsked(other)] };
      continue;
    }
    for (const { request, ...kind } of alternatives(question, each.request, resolved)) {
      const pair = betweenCalls(each, new Calls(request, each.counts));
      const own = question === "hosts" ? each.request.topology.name : "as asked";
      if (pair !== undefined) return { pair, kinds: [asAsked(own), kind] };
    }
  }
  return undefined;
}

function ranksText({ request }: Calls): string {
  return countText(request.topology.ranks, "rank");
}

const ownLabels = {
  size: ["smaller count", "larger count"],
  position: ["one place", "another place"],
} as const;

/** The same calls with another value of what a question varies. */
function alternatives(
  question: Dependence,
  request: CallRequest,
  { versions, topologies, counts, variables }: Resolved,
): (CallKind & { readonly request: CallRequest })[] {
  const { settings, forced, topology } = request;
  switch (question) {
    case "channels":
      return Array.from({ length: channelLimit }, (_, at) => {
        const limits = { minChannels: at + 1, maxChannels: at + 1 };
        return {
          call: countText(at + 1, "channel"),
          variables: withChannels(variables, at + 1),
          request: { ...request, settings: { ...settings, ...limits } },
        };
      });
    case "protocol":
      return protocols
        .map((protocol) => ({
          call: protocol,
          variables: { ...variables, NCCL_PROTO: protocol },
          request: { ...request, forced: { ...forced, protocol } },
        }))
        .filter((each) => isServed(each.request, counts.from));
    case "version":
      return versions.slice(1).map((version) => {
        return { call: `NCCL ${version}`, variables, request: { ...request, version } };
      });
    case "hosts":
      return topologies.slice(1).map((topologyOf) => {
        const other = topologyOf(topology.ranks);
        return { call: other.name, variables, request: { ...request, topology: other } };
      });
    default:
      return [];
  }
}

/** Variables with an exact number of channels. */
export function withChannels(variables: NcclVariables, channels: number): NcclVariables {
  const others = Object.entries(variables).filter(([name]) => {
    return !["minChannels", "maxChannels"].includes(settingOf(name) ?? "");
  });
  const limits = { NCCL_MIN_NCHANNELS: `${channels}`, NCCL_MAX_NCHANNELS: `${channels}` };
  return { ...Object.fromEntries(others), ...limits };
}

function differentFold({ calls, count, block, element }: Place, kind: CallKind): DifferentFold {
  const plan = calls.plan(count);
  const { piece, rounding } = elementPlan(plan, element, block);
  const { algorithm, protocol, channels, ranks } = plan;
  const { channel, loop, chunk, order } = piece as Piece;
  const where = { channels, channel, loop, chunk, order, rounding };
  return { ...kind, ranks, count, block, element, algorithm, protocol, ...where };
}

function witnessFor(
  { dtype, op = "sum" }: Resolved,
  folds: readonly [DifferentFold, DifferentFold],
): Witness | undefined {
  const present = Math.min(...folds.map(({ ranks }) => ranks));
  const [a, b] = folds.map(({ order, rounding }) => ({
    order,
    rounding: rounding === "separate" ? ("separate" as const) : ("fused" as const),
  }));
  return a && b && witnessOf({ dtype, op, present }, [a, b]);
}

function rangesOf(calls: Calls): FoldRange[] {
  const { request, counts, blocks } = calls;
  const { ranks } = request.topology;
  const orders = (count: number): FoldOrder[] => {
    const { pieces } = calls.plan(count);
    return Array.from({ length: blocks }, (_, block) => {
      return (pieces.find((piece) => piece.block === block) as Piece).order;
    });
  };
  if (ranks === 1) {
    const copy = { algorithm: "Copy", protocol: undefined, channels: 1 } as const;
    return [{ ranks, from: counts.from, to: counts.to, ...copy, folds: orders(counts.from) }];
  }
  return calls.choices.map((choice) => ({
    ranks,
    ...choice,
    channels: calls.mostChannels(choice),
    folds: calls.wholeFolds(choice) && orders(choice.from),
  }));
}

/** A fold in words: `r2 + r1 + (r3 + r0)`, from left to right. */
export function foldText(order: FoldOrder, op: Resolved["op"]): string {
  assertArgument(isFoldOrder(order), "foldText", "order", order, "an order of folding");
  const sign = op === undefined ? ", " : ` ${operatorSign(op)} `;
  return orderText(order, sign);
}

function isFoldOrder(found: unknown): boolean {
  return (
    Array.isArray(found) && found.every((each) => typeof each === "number" || isFoldOrder(each))
  );
}

/** Operators and types that NCCL may reduce in the switch. */
function inSwitch({ op, dtype }: Resolved): boolean {
  const { kind, bytes } = dtypeInfo[dtype];
  if (op === "sum") return bytes > 1;
  return (op === "min" || op === "max") && bytes > 1 && (kind !== "float" || bytes === 2);
}

/** The contribution that changes no other one; `undefined` where there is none. */
function neutralText({ op, dtype }: Resolved): string | undefined {
  if (op === undefined || op === "avg") return undefined;
  if (op === "prod") return "1";
  if (op === "min") return "the largest value";
  if (op === "max") return "the least value";
  if (dtypeInfo[dtype].kind !== "float") return "0";
  const isNegative = typeof op === "object" && op.preMul < 0;
  return isNegative ? "+0, or -0 where no sum is -0" : "-0, or +0 where no sum is -0";
}

function conditionsOf(resolved: Resolved): string[] {
  const { environment, op, dtype, ask, ranks, collective } = resolved;
  const neutral = neutralText(resolved);
  const found = ["the call is alone in its group, and its buffers are in no symmetric window"];
  if (environment.allowsNvls && inSwitch(resolved) && ranks.some((each) => each > 1)) {
    found.push("in-switch reduction (NVLS) is off: NCCL_NVLS_ENABLE=0");
  }
  if (ask.includes("ranks") && neutral !== undefined) {
    found.push(`ranks beyond a smaller group contribute ${neutral}`);
    const copies = ranks[0] === 1;
    // Those of float64 are never compared: below.
    if (copies && dtypeInfo[dtype].kind === "float" && dtype !== "float64")
      found.push("bits of a NaN are not compared: a single rank copies them");
    if (dtype === "float8e5m2" && (copies || seesOrder(resolved)))
      found.push(
        "no contribution is infinite: the first hop turns infinities into the largest value",
      );
  }
  if (dtype === "float64" && op !== undefined) found.push("bits of a float64 NaN are not compared");
  if (collective === "reduceScatter") found.push("an element is one of a rank's own block");
  return found;
}
