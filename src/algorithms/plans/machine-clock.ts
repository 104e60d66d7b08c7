/** The time of calls on a measured machine: of NCCL's plans, and of collectives that are sends and receives of one group. */
import { bytesOf } from "../../api/index.ts";
import {
  type CallMode,
  callUs,
  choiceOfCall,
  extrapolationOf,
  type MachineProfile,
  type MessageCalls,
  type MessageUse,
  messageTimes,
  type NcclPlan,
  type NcclSettings,
  type TimedCall,
  type TimedQuestion,
  timedExchange,
  timedMessage,
  timedPlan,
} from "../nccl/index.ts";
import type { Link } from "../timing.ts";
import type { BlockCounts, MachineTime, MessageTime, PlanQuestion, TimedMachine } from "./plan.ts";

const psPerUs = 1e6;
const mostKnown = 1024;

/**
 * A time is that of a call back to back with others: the start of kernels is in it. Buffers are in ordinary memory, which NCCL never
 * registers, unless they are symmetric: `alloc` of twinccl takes the memory of `cudaMalloc`.
 */
export class MachineClock {
  readonly messages: Link;
  readonly #profile: MachineProfile;
  /** The reason why times are extrapolated whatever the call; `undefined` without one. */
  readonly #unusual: string | undefined;
  readonly #planOf: (question: PlanQuestion) => NcclPlan | undefined;
  readonly #settings: NcclSettings;
  /** The times of messages by their bytes, for each number of ranks and use. */
  readonly #known = new Map<string, Map<number, MessageTime>>();

  /**
   * `planOf` gives NCCL's plan of a call where NCCL has one, with these settings. `unusual` is the reason why no such plan was measured, if there is
   * one.
   */
  constructor(
    profile: MachineProfile,
    planOf: (question: PlanQuestion) => NcclPlan | undefined,
    settings: NcclSettings = {},
    unusual?: string,
  ) {
    this.#profile = profile;
    this.#unusual = unusual;
    this.#planOf = planOf;
    this.#settings = settings;
    const { startUs, portRate } = profile.numbers.exchange;
    this.messages = { latencyPs: Math.round(startUs * 1e6), gigabytesPerSecond: portRate };
  }

  /** The time of a message: of messages both ways it is that of a `sendRecv` of the same bytes. */
  message(bytes: number, ranks: number, use: MessageUse): MessageTime {
    const key = `${ranks} ${use.kind} ${use.isCrossing}`;
    const known = this.#known.get(key) ?? new Map<number, MessageTime>();
    this.#known.set(key, known);
    const earlier = known.get(bytes);
    if (earlier !== undefined) return earlier;
    if (known.size === mostKnown) known.clear();
    const found = this.#messageOf(bytes, ranks, timedMessage(bytes, ranks, use));
    known.set(bytes, found);
    return found;
  }

  #messageOf(bytes: number, ranks: number, calls: MessageCalls | undefined): MessageTime {
    const mode: CallMode = { ...this.#profile.mode, memory: "ordinary" };
    const asked = { collective: "sendRecv", dtype: "uint8", count: bytes, ranks, mode } as const;
    const on = this.#machineOf(asked, calls?.sent);
    if (calls === undefined) {
      const none = { occupancyPs: 0, movedPs: 0, lastPs: 0, startPs: 0, callPs: 0, lagPs: 0 };
      return { latencyPs: undefined, ...none, on };
    }
    const times = messageTimes(this.#profile.numbers, calls, mode);
    return {
      ...{ latencyPs: undefined, on },
      occupancyPs: Math.round(times.portUs * psPerUs),
      movedPs: Math.round(times.movedUs * psPerUs),
      lastPs: Math.round(times.lastUs * psPerUs),
      startPs: Math.round(times.startUs * psPerUs),
      callPs: Math.round(times.callUs * psPerUs),
      lagPs: Math.round(times.lagUs * psPerUs),
    };
  }

  /** The time of a call; `undefined` for a collective without a model. */
  time(question: PlanQuestion, counts: BlockCounts | undefined): MachineTime | undefined {
    const { numbers, mode } = this.#profile;
    const asked = question.collective === "barrier" ? barrierOf(question) : question;
    const call = this.#callOf(asked, counts);
    if (call === "unknown") return undefined;
    const memory = question.place === undefined ? "ordinary" : "symmetric";
    const found: CallMode = { ...mode, memory };
    const us = call === undefined ? 0 : callUs(numbers, call, found);
    const timed = { ...timedQuestion(asked, counts), mode: found };
    // The clock counts picoseconds.
    const ns = Math.round(us * 1e6) / 1000;
    return { ns, ...this.#machineOf(timed, call), choice: call && choiceOfCall(call) };
  }

  #machineOf(timed: TimedQuestion, call: TimedCall | undefined): TimedMachine {
    const { machine, nccl } = this.#profile;
    const extrapolated = extrapolationOf(this.#profile, timed, call) ?? this.#unusual;
    return { machine: `${machine}, NCCL ${nccl}`, extrapolated };
  }

  #callOf(
    question: PlanQuestion,
    counts: BlockCounts | undefined,
  ): TimedCall | undefined | "unknown" {
    const plan = this.#planOf(question);
    if (plan !== undefined) return timedPlan(plan, question.place, this.#settings);
    const traffic = trafficOf(question, counts);
    if (traffic === undefined) return "unknown";
    const sameBlock = question.collective === "allGatherv";
    return question.ranks === 1 ? undefined : timedExchange(traffic, sameBlock);
  }
}

/** NCCL has no barrier: it is an all-reduce of one byte. */
function barrierOf(question: PlanQuestion): PlanQuestion {
  return { ...question, collective: "allReduce", dtype: "uint8", op: "sum", count: 1 };
}

function timedQuestion(question: PlanQuestion, counts: BlockCounts | undefined): TimedQuestion {
  const { ranks, count, op, dtype = "uint8" } = question;
  // Collectives without a measurement of that name are extrapolated under any name.
  const collective = question.collective as TimedQuestion["collective"];
  const matrix = collective === "allToAllv" ? counts : undefined;
  return { collective, ranks, count, dtype, op, counts: matrix };
}

/** Bytes from each rank to each rank; `undefined` for a collective that is no group of sends and receives. */
function trafficOf(
  { collective, ranks, root, count, dtype = "uint8" }: PlanQuestion,
  counts: BlockCounts | undefined,
): readonly (readonly number[])[] | undefined {
  const bytes = bytesOf(dtype);
  const row = counts?.[0];
  const block = (rank: number): number => bytes * (row === undefined ? count : (row[rank] ?? 0));
  const pairs = (of: (from: number, to: number) => number): number[][] =>
    Array.from({ length: ranks }, (_, from) =>
      Array.from({ length: ranks }, (_, to) => of(from, to)),
    );
  switch (collective) {
    case "allToAll":
      return pairs(() => bytes * count);
    case "allToAllv":
      return pairs(
        (from, to) => bytes * (counts === undefined ? count : (counts[from]?.[to] ?? 0)),
      );
    case "allGatherv":
      return pairs(block);
    case "gather":
      return pairs((from, to) => (to === root ? block(from) : 0));
    case "scatter":
      return pairs((from, to) => (from === root ? block(to) : 0));
    default:
      return undefined;
  }
}
