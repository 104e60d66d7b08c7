/** Questions for the time of a call, and their answers by a profile: the time, why it is extrapolated, and NCCL's choice. */
import { specifications } from "../../../api/collectives/index.ts";
import { bytesOf, type DType, dtypes, isDType } from "../../../api/dtype.ts";
import { InvalidArgumentError } from "../../../api/errors.ts";
import { namesText } from "../../../api/nearest.ts";
import { invalid, textOf } from "../../../api/option-kinds.ts";
import { type ReduceOp, reduceOpChoices, reduceOpFault } from "../../../api/reduce-op.ts";
import { assertForced, type Forced } from "../choice.ts";
import { isTopologyName, topologies } from "../machines.ts";
import { ncclPlan } from "../request.ts";
import { type NcclCollective, ncclCollectives } from "../rules.ts";
import { packBytes, type TimedCall, timedPlan } from "./call.ts";
import { timedExchange } from "./exchange.ts";
import { type AskedMode, type CallMode, callUs, modeOf, modeText } from "./model.ts";
import type { MachineProfile, MeasuredCalls, MeasuredRange } from "./profile.ts";

/** Calls that are sends and receives in one group; `sendRecv` is one message to the next rank. */
const exchanges = ["allToAll", "allToAllv", "gather", "scatter", "sendRecv"] as const;

type ExchangeCollective = (typeof exchanges)[number];

/** All collectives with times. */
export const timedCollectives: readonly TimedQuestion["collective"][] = [
  ...ncclCollectives,
  ...exchanges,
];

/** A call with everything that decides its time but the machine. */
export interface TimedQuestion {
  readonly collective: NcclCollective | ExchangeCollective;
  readonly ranks: number;
  /** Elements as passed to the call; for sends and receives those of one message. */
  readonly count: number;
  readonly dtype: DType;
  /** A sum when left out. */
  readonly op?: ReduceOp | undefined;
  /** 0 when left out. */
  readonly root?: number | undefined;
  /** For an all-to-allv alone: row i holds the elements that rank i sends to each rank, each `count` when left out. */
  readonly counts?: readonly (readonly number[])[] | undefined;
  readonly forced?: Forced | undefined;
  /** As in the profile where a field is left out. */
  readonly mode?: AskedMode | undefined;
}

/** NCCL's choice for a call: algorithm and protocol, such as `Ring LL`; a symmetric kernel; `messages`. */
export function choiceNameOf(call: TimedCall): string {
  if (call.kind === "exchange") return "messages";
  if (call.kind === "symmetric") return `Symmetric ${call.kernel}`;
  return `${call.kind === "tree" ? "Tree" : "Ring"} ${call.protocol}`;
}

/** The fields of a profile that decide a call's plan. */
type Planned = Pick<MachineProfile, "nccl" | "topology" | "mode">;

/** Facts of the last calls: a plan takes a hundred times as long as the formulas. The oldest is evicted first. */
const knownCalls = new Map<string, TimedCall | undefined>();
const mostKnown = 1024;

/**
 * The facts of a call; `undefined` for one that moves nothing between GPUs.
 *
 * @throws InvalidArgumentError with the field of a wrong value. UnsupportedError for more ranks than the machine has.
 */
export function timedCall(
  question: TimedQuestion,
  planned: Planned,
  mode: CallMode = modeOf(planned.mode, question.mode),
): TimedCall | undefined {
  // Before the look-up: a wrong value may have the text of a right one.
  check(question);
  const { collective, ranks, count, dtype, op = "sum", root = 0, forced, counts } = question;
  const isSymmetric = mode.memory === "symmetric";
  if (counts !== undefined) return planCall(question, planned, isSymmetric);
  const { nccl, topology } = planned;
  const operator = typeof op === "object" ? "preMul" : op;
  const memory = isSymmetric ? "symmetric" : "";
  const choice = forced === undefined ? "" : `${forced.algorithm}/${forced.protocol}`;
  const key = `${nccl}/${topology}/${collective}/${ranks}/${count}/${dtype}/${operator}/${root}/${memory}/${choice}`;
  const known = knownCalls.get(key);
  if (known !== undefined || knownCalls.has(key)) return known;
  const found = planCall(question, planned, isSymmetric);
  const oldest = knownCalls.size < mostKnown ? undefined : knownCalls.keys().next().value;
  if (oldest !== undefined) knownCalls.delete(oldest);
  knownCalls.set(key, found);
  return found;
}

function planCall(
  question: TimedQuestion,
  { nccl: version, topology: name }: Planned,
  isSymmetric: boolean,
): TimedCall | undefined {
  const { collective, ranks, count, dtype, op = "sum", root = 0, forced } = question;
  // Throws for more ranks than the machine has.
  const topology = topologies[name](ranks);
  if (isExchange(collective)) {
    // Only a message to itself takes time on one rank: collectives are copies there.
    if (ranks === 1 && collective !== "sendRecv") return undefined;
    return timedExchange(trafficOf(collective, question));
  }
  const { rooted, reduces } = specifications[collective];
  const symmetric = isSymmetric ? { send: 0, recv: 0 } : undefined;
  const plan = ncclPlan({
    ...{ version, topology, collective, dtype, count, forced, symmetric },
    op: reduces ? op : undefined,
    root: rooted ? root : undefined,
  });
  return timedPlan(plan, symmetric);
}

function assertQuestion(found: unknown): asserts found is object {
  if (typeof found === "object" && found !== null) return;
  const needs = "an object with collective, ranks, count and dtype";
  throw invalid("time of a call", "question", textOf(found), needs);
}

/** Collectives with an operator. */
const folding: readonly string[] = ["allReduce", "reduceScatter", "reduce"];

/** Collectives with a root. */
const withRoot: readonly string[] = ["reduce", "broadcast", "gather", "scatter"];

function check(question: TimedQuestion): void {
  const { collective, ranks, count, dtype, op, root = 0, counts, forced } = question;
  if (!timedCollectives.includes(collective)) {
    const names = namesText(typeof collective === "string" ? collective : "", timedCollectives);
    throw fault("a call", "collective", collective, `one of ${names}`);
  }
  const wrong = (field: string, found: unknown, needs: string): InvalidArgumentError =>
    fault(collective, field, found, needs);
  const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && Number(value) >= 0;
  if (!isDType(dtype)) throw wrong("dtype", dtype, `one of ${dtypes.join(", ")}`);
  if (!isCount(ranks) || ranks === 0) throw wrong("ranks", ranks, "an integer of at least 1");
  if (!isCount(count)) throw wrong("count", count, "an integer of at least 0");
  if (op !== undefined && reduceOpFault(op, dtype) !== undefined) {
    throw wrong("op", op, reduceOpChoices);
  }
  if (withRoot.includes(collective) && !(isCount(root) && root < ranks)) {
    throw wrong("root", root, `a rank of 0..${ranks - 1}`);
  }
  if (forced !== undefined) {
    const isObject = typeof forced === "object" && forced !== null;
    if (!isObject) throw wrong("forced", forced, "an object with algorithm and protocol");
    assertForced(`time of ${collective}`, forced);
  }
  if (counts === undefined) return;
  if (collective !== "allToAllv") {
    throw wrong("counts", counts, "none: they are for allToAllv");
  }
  const isRow = (row: unknown): boolean =>
    Array.isArray(row) && row.length === ranks && row.every(isCount);
  if (!Array.isArray(counts) || counts.length !== ranks || !counts.every(isRow)) {
    const needs = `${ranks} rows of ${ranks} integers of at least 0`;
    throw wrong("counts", counts, needs);
  }
}

function fault(call: string, field: string, found: unknown, needs: string): InvalidArgumentError {
  const value = found === undefined ? "nothing" : textOf(found);
  return invalid(`time of ${call}`, field, value, needs);
}

function isExchange(collective: string): collective is ExchangeCollective {
  return (exchanges as readonly string[]).includes(collective);
}

/** Bytes from each rank to each rank. */
function trafficOf(
  collective: ExchangeCollective,
  { ranks, count, dtype, root = 0, counts }: TimedQuestion,
): readonly (readonly number[])[] {
  const bytes = bytesOf(dtype);
  if (counts !== undefined) {
    return counts.map((row) => row.map((each) => each * bytes));
  }
  const moves = (from: number, to: number): boolean => {
    if (collective === "gather") return to === root;
    if (collective === "scatter") return from === root;
    return collective !== "sendRecv" || to === (from + 1) % ranks;
  };
  const every = Array.from({ length: ranks }, (_, rank) => rank);
  return every.map((from) => every.map((to) => (moves(from, to) ? count * bytes : 0)));
}

/** Bytes of a call as nccl-tests counts them. */
export function testedBytes(question: TimedQuestion): number {
  assertQuestion(question);
  check(question);
  const { collective, ranks, count, dtype, counts } = question;
  const whole = ["allReduce", "broadcast", "reduce", "sendRecv"].includes(collective);
  const sums = counts?.map((row) => row.reduce((sum, each) => sum + each, 0));
  const elements = sums === undefined ? count * (whole ? 1 : ranks) : Math.max(...sums);
  return elements * bytesOf(dtype);
}

// Answers.

/** The predicted time of a call. */
export interface CallTime {
  /** Microseconds of a call; 0 for one that moves nothing between GPUs. */
  readonly us: number;
  /** The reason why the time is extrapolated; `undefined` within the measured range. */
  readonly extrapolated: string | undefined;
}

/**
 * The time of a call on a machine.
 *
 * @throws InvalidArgumentError with the field of a wrong value. UnsupportedError for more ranks than the machine has.
 */
export function timeOf(profile: MachineProfile, question: TimedQuestion): CallTime {
  checkArguments(profile, question);
  const mode = modeOf(profile.mode, question.mode);
  const call = timedCall(question, profile, mode);
  const us = call === undefined ? 0 : callUs(profile.numbers, call, mode);
  return { us, extrapolated: extrapolationOf(profile, question, call, mode) };
}

/** A total table: a name that is left out does not compile. */
const fields: Readonly<Record<keyof TimedQuestion, true>> = {
  ...{ collective: true, ranks: true, count: true, dtype: true, op: true, root: true },
  ...{ counts: true, forced: true, mode: true },
};

const modeFields: Readonly<Record<keyof CallMode, true>> = {
  ...{ launch: true, memory: true, processes: true, awaited: true, program: true },
};

const forcedFields: Readonly<Record<keyof Forced, true>> = { algorithm: true, protocol: true };

/** Further fields of a measurement, which is a question too. */
const measuredFields: readonly string[] = ["us", "source", "weight"];

/** Refuses what is no profile or no question; `parseProfile` checks the fields of a profile. */
function checkArguments(profile: Partial<MachineProfile> | null, question: unknown): void {
  const isPlanned = isTopologyName(profile?.topology) && typeof profile?.nccl === "string";
  if (!isPlanned || !profile?.numbers || !profile.mode || !profile.measured) {
    const needs = "a profile, such as machineProfiles.h200x8 or that of parseProfile";
    throw invalid("time of a call", "profile", textOf(profile), needs);
  }
  assertQuestion(question);
  const { mode, forced } = question as Partial<TimedQuestion>;
  checkNames("", question, fields, measuredFields);
  if (mode !== undefined && typeof mode !== "object") {
    const needs = `an object with ${Object.keys(modeFields).join(", ")}`;
    throw invalid("time of a call", "mode", textOf(mode), needs);
  }
  checkNames("mode.", mode, modeFields);
  if (typeof forced === "object") checkNames("forced.", forced, forcedFields);
}

/** Refuses names that an object does not have. */
function checkNames(
  path: "" | "mode." | "forced.",
  object: object | null | undefined,
  known: Readonly<Record<string, true>>,
  others: readonly string[] = [],
): void {
  for (const name in object) {
    if (Object.hasOwn(known, name) || others.includes(name)) continue;
    const needs = `one of ${namesText(name, Object.keys(known))}`;
    const field = `${path}${name}`;
    throw new InvalidArgumentError(
      { headline: `time of a call: ${field}: it is not known here, needs ${needs}` },
      { field },
    );
  }
}

/** The choice of NCCL for a call. */
export interface CallChoice {
  /** Algorithm and protocol, such as `Ring LL`; the kernel of symmetric memory; `messages` for sends and receives. */
  readonly name: string;
  /** Channels, or blocks of a symmetric kernel, that carry data. */
  readonly channels: number;
}

/**
 * NCCL's choice for a call on a machine; `undefined` for one that moves nothing between GPUs.
 *
 * @throws InvalidArgumentError with the field of a wrong value. UnsupportedError for more ranks than the machine has.
 */
export function choiceOf(profile: MachineProfile, question: TimedQuestion): CallChoice | undefined {
  checkArguments(profile, question);
  const call = timedCall(question, profile);
  return call && choiceOfCall(call);
}

/** NCCL's choice in the facts of a call. */
export function choiceOfCall(call: TimedCall): CallChoice {
  const channels = call.kind === "symmetric" ? call.blocks : call.channels;
  return { name: choiceNameOf(call), channels };
}

/** Collectives of blocks for each rank, one after another. */
const blockwise: readonly string[] = ["allGather", "reduceScatter", "allToAll"];

/** Added to a way of calling for blocks at addresses that are no multiple of 16, where they matter: not over LL. */
export const misalignedText = ", misaligned blocks";

/** The way of calling, as the measured ranges name it. */
export function wayText(
  question: TimedQuestion,
  call: TimedCall | undefined,
  mode: CallMode,
): string {
  const { collective, count, dtype } = question;
  const isAligned = !blockwise.includes(collective) || (count * bytesOf(dtype)) % packBytes === 0;
  return isAligned || !dependsOnAddress(call) ? modeText(mode) : modeText(mode) + misalignedText;
}

/** False for a symmetric kernel, which depends on the distance of its buffers. */
function dependsOnAddress(call: TimedCall | undefined): boolean {
  if (call === undefined || call.kind === "symmetric") return false;
  return call.kind === "exchange" ? call.hasSimple : call.protocol !== "LL";
}

/**
 * The reason why a predicted time is extrapolated; `undefined` within the measured range. `call` are the facts of the question's
 * plan, `undefined` for a call that moves nothing between GPUs.
 */
export function extrapolationOf(
  profile: MachineProfile,
  question: TimedQuestion,
  call: TimedCall | undefined,
  how: CallMode = modeOf(profile.mode, question.mode),
): string | undefined {
  const { collective, dtype, op = "sum" } = question;
  const measured = profile.measured[collective];
  if (measured === undefined) return `no ${collective} was measured`;
  const mode = wayText(question, call, how);
  const choice = call && choiceNameOf(call);
  const why = beyond(question, mode, measured.modes[mode]);
  if (why !== undefined) return why;
  if (choice !== undefined) {
    const beyondChoice = beyond(question, choice, measured.choices[choice]);
    if (beyondChoice !== undefined) return beyondChoice;
  }
  const folds = folding.includes(collective);
  if (folds && !measured.dtypes.includes(dtype))
    return `measured with ${measured.dtypes.join(", ")}`;
  if (folds && op !== "sum") return "measured with sum";
  if (call?.kind === "symmetric" && !call.movesPacks) {
    return `measured with buffers whole ${packBytes} bytes apart`;
  }
  if (call?.kind === "symmetric" && call.skipsOwnRank && call.ranks > 2) {
    return "in place: measured with 2 ranks";
  }
  return undefined;
}

function beyond(
  question: TimedQuestion,
  kind: string,
  measured: MeasuredCalls | undefined,
): string | undefined {
  const { collective, ranks } = question;
  if (measured === undefined) return `no ${collective} was measured: ${kind}`;
  const [fewest, most] = measured.ranks;
  if (ranks < fewest || ranks > most)
    return `${kind}: measured with ${rangeText(measured.ranks)} ranks`;
  const [least, largest] = measured.bytes;
  const bytes = testedBytes(question);
  if (bytes < least || bytes > largest)
    return `${kind}: measured with ${rangeText(measured.bytes)} bytes`;
  return undefined;
}

function rangeText([least, most]: MeasuredRange): string {
  return least === most ? `${least}` : `${least} to ${most}`;
}
