/** Questions for the time of a call, and their answers by a profile. */
import { bytesOf, type DType } from "../../../api/dtype.ts";
import type { ReduceOp } from "../../../api/reduce-op.ts";
import type { Forced } from "../choice.ts";
import { topologies } from "../hosts.ts";
import { ncclPlan } from "../plan.ts";
import type { NcclCollective } from "../rules.ts";
import type { Topology } from "../topology.ts";
import { type TimedCall, timedExchange, timedPlan } from "./call.ts";
import { type CallMode, callUs } from "./model.ts";
import type { MachineProfile } from "./profile.ts";

/** Calls that are sends and receives in one group; `sendRecv` is one message to the next rank. */
const exchanges = ["allToAll", "allToAllv", "gather", "scatter", "sendRecv"] as const;

type ExchangeCollective = (typeof exchanges)[number];

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
  /** For an all-to-allv: row i holds the elements that rank i sends to each rank. */
  readonly counts?: readonly (readonly number[])[] | undefined;
  readonly forced?: Forced | undefined;
  /** As in the profile where a field is left out. */
  readonly mode?: Partial<CallMode> | undefined;
}

/** The predicted time of a call. */
export interface CallTime {
  /** Microseconds of a call; 0 for one that moves nothing between GPUs. */
  readonly us: number;
  /** The reason why the time is extrapolated; `undefined` within the measured range. */
  readonly extrapolated: string | undefined;
}

/** The time of a call on a machine. */
export function timeOf(profile: MachineProfile, question: TimedQuestion): CallTime {
  const call = timedCall(question, profile.nccl, topologies[profile.topology], profile.mode);
  const mode = { ...profile.mode, ...question.mode };
  const us = call === undefined ? 0 : callUs(profile.numbers, call, mode);
  return { us, extrapolated: extrapolationOf(profile, question) };
}

/** The choice of NCCL for a call. */
export interface CallChoice {
  /** Algorithm and protocol, such as `Ring LL`; the kernel of symmetric memory; `messages` for sends and receives. */
  readonly name: string;
  /** Channels, or blocks of a symmetric kernel, that carry data. */
  readonly channels: number;
}

/** NCCL's choice for a call on a machine; `undefined` for one that moves nothing between GPUs. */
export function choiceOf(profile: MachineProfile, question: TimedQuestion): CallChoice | undefined {
  const call = timedCall(question, profile.nccl, topologies[profile.topology], profile.mode);
  if (call === undefined) return undefined;
  if (call.kind === "exchange") return { name: "messages", channels: call.channels };
  if (call.kind === "symmetric") return { name: `Symmetric ${call.kernel}`, channels: call.blocks };
  const algorithm = call.kind === "tree" ? "Tree" : "Ring";
  return { name: `${algorithm} ${call.protocol}`, channels: call.channels };
}

/** The facts of a call; `undefined` for one that moves nothing between GPUs. */
export function timedCall(
  question: TimedQuestion,
  version: string,
  topology: (ranks: number) => Topology,
  mode: CallMode,
): TimedCall | undefined {
  const { collective, ranks, count, dtype, op = "sum", root = 0, forced } = question;
  if (isExchange(collective)) {
    const oneLength = collective !== "allToAllv" || question.counts === undefined;
    return timedExchange(trafficOf(collective, question), oneLength);
  }
  const rooted = collective === "reduce" || collective === "broadcast";
  const copies = collective === "broadcast" || collective === "allGather";
  const symmetric = (question.mode?.memory ?? mode.memory) === "symmetric";
  const plan = ncclPlan({
    ...{ version, topology: topology(ranks), collective, dtype, count, forced },
    op: copies ? undefined : op,
    root: rooted ? root : undefined,
    symmetric: symmetric ? { send: 0, recv: 0 } : undefined,
  });
  return timedPlan(plan, symmetric);
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
  if (collective === "allToAllv" && counts !== undefined) {
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
export function testedBytes({ collective, ranks, count, dtype, counts }: TimedQuestion): number {
  const whole = ["allReduce", "broadcast", "reduce", "sendRecv"].includes(collective);
  const sums = counts?.map((row) => row.reduce((sum, each) => sum + each, 0));
  const elements = sums === undefined ? count * (whole ? 1 : ranks) : Math.max(...sums);
  return elements * bytesOf(dtype);
}

/** The reason why a predicted time is extrapolated; `undefined` within the measured range. */
export function extrapolationOf(
  profile: MachineProfile,
  question: TimedQuestion,
): string | undefined {
  const { collective, ranks } = question;
  const measured = profile.measured[collective];
  if (measured === undefined) return `no ${collective} was measured`;
  const [fewest, most] = measured.ranks;
  if (ranks < fewest || ranks > most) return `measured with ${fewest} to ${most} ranks`;
  const [least, largest] = measured.bytes;
  const bytes = testedBytes(question);
  if (bytes < least || bytes > largest) return `measured from ${least} to ${largest} bytes`;
  const blocks = ["allGather", "reduceScatter", "allToAll"].includes(collective);
  if (blocks && (question.count * bytesOf(question.dtype)) % 16 !== 0) {
    return "measured with blocks of whole 16 bytes";
  }
  return undefined;
}
