/** Answers to questions by a profile: the time of a call with the reason why it is extrapolated, and NCCL's choice. */
import { bytesOf } from "../../../api/dtype.ts";
import type { TimedCall } from "./call.ts";
import { callUs, modeText } from "./model.ts";
import type { MachineProfile, MeasuredCalls, MeasuredRange } from "./profile.ts";
import { choiceNameOf, type TimedQuestion, testedBytes, timedCall } from "./question.ts";

/** The predicted time of a call. */
export interface CallTime {
  /** Microseconds of a call; 0 for one that moves nothing between GPUs. */
  readonly us: number;
  /** The reason why the time is extrapolated; `undefined` within the measured range. */
  readonly extrapolated: string | undefined;
}

/** The time of a call on a machine. */
export function timeOf(profile: MachineProfile, question: TimedQuestion): CallTime {
  const call = timedCall(question, profile);
  const mode = { ...profile.mode, ...question.mode };
  const us = call === undefined ? 0 : callUs(profile.numbers, call, mode);
  return { us, extrapolated: extrapolationOf(profile, question, call) };
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
  const call = timedCall(question, profile);
  return call && choiceOfCall(call);
}

/** NCCL's choice in the facts of a call. */
export function choiceOfCall(call: TimedCall): CallChoice {
  const channels = call.kind === "symmetric" ? call.blocks : call.channels;
  return { name: choiceNameOf(call), channels };
}

/** Multiples of these bytes move in one load or store. */
const packBytes = 16;

/**
 * The reason why a predicted time is extrapolated; `undefined` within the measured range. `call` are the facts of the question's
 * plan, `undefined` for a call that moves nothing between GPUs.
 */
export function extrapolationOf(
  profile: MachineProfile,
  question: TimedQuestion,
  call: TimedCall | undefined,
): string | undefined {
  const { collective, dtype, count } = question;
  const measured = profile.measured[collective];
  if (measured === undefined) return `no ${collective} was measured`;
  const mode = modeText({ ...profile.mode, ...question.mode });
  const choice = call && choiceNameOf(call);
  const why = beyond(question, mode, measured.modes[mode]);
  if (why !== undefined) return why;
  if (choice !== undefined) {
    const beyondChoice = beyond(question, choice, measured.choices[choice]);
    if (beyondChoice !== undefined) return beyondChoice;
  }
  const folds = collective === "allReduce" || collective === "reduceScatter";
  if (folds && !measured.dtypes.includes(dtype))
    return `measured with ${measured.dtypes.join(", ")}`;
  const blocks = collective === "allGather" || collective === "reduceScatter";
  if ((blocks || collective === "allToAll") && (count * bytesOf(dtype)) % packBytes !== 0) {
    return `measured with blocks of whole ${packBytes} bytes`;
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
