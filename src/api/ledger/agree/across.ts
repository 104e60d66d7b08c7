/**
 * Calls of ranks in several processes: each rank's words to the others about its call, and whether all fit.
 *
 * Ranks of one process are compared by looking; here they say what would be looked at: the signature, the lengths that must
 * be transposes, and the windows of symmetric memory that the call would lie in.
 */
import type { CallDigest, CommInfo, RankCall, Session } from "../../backend.ts";
import type { Posting, SignatureField } from "../calls/posting.ts";
import type { Slot } from "../calls/slot.ts";
import {
  type CallWords,
  callWords,
  type Lengths,
  type Mismatch,
  signatureMismatch,
  transposeFault,
} from "./compare.ts";
import { type Windows, windowLaw } from "./windows.ts";

/** A rank's words about its call. */
interface Told {
  readonly call: CallWords;
  readonly signature: readonly SignatureField[];
  /** Of the call, or of each that it records, where lengths are transposes; `null` elsewhere. */
  readonly lengths: readonly (Lengths | null)[];
  readonly windows: readonly SignatureField[];
}

/** Parts of dispatch that a comparison needs. */
interface Comparing {
  readonly session: Session;
  readonly comm: CommInfo;
  readonly windows: Windows;
}

/** Compares a call with those of other processes, where there are any and comparisons are on. */
export function comparedAcross(
  { session, comm, windows }: Comparing,
  slot: Slot,
): Promise<Mismatch | undefined> | undefined {
  const [own] = slot.posted;
  if (own === undefined || slot.posted.length === slot.postings.length) return undefined;
  return session.compare?.(comm, slot.number, () => ownWords(own, windows), judgeWords);
}

/** A rank's own words. */
function ownWords(posting: Posting, windows: Windows): CallDigest {
  const { call, prepared } = posting;
  const { signature } = prepared;
  const calls = callsOf(call);
  const fields = windows.fieldsOf(calls, (index) => prefixOf(call, index));
  const told: Told = {
    ...{ call: callWords(posting), signature },
    ...{ lengths: calls.map(lengthsOf), windows: fields },
  };
  return { kind: JSON.stringify([signature, fields]), details: JSON.stringify(told) };
}

/** The mismatch of the calls of all ranks, given their words by rank. */
function judgeWords(words: readonly string[]): Mismatch | undefined {
  const told = words.map((each) => JSON.parse(each) as Told);
  const differs = faultOf(told);
  return differs && { ...differs, calls: told.map(({ call }) => call) };
}

function faultOf(told: readonly Told[]): Mismatch | undefined {
  const differs = signatureMismatch(told.map(({ signature }) => signature)) ?? lengthsFault(told);
  if (differs !== undefined) return differs;
  const apart = signatureMismatch(told.map(({ windows }) => windows));
  return apart && { ...apart, law: windowLaw };
}

/** The call itself, or those that it records. */
export function callsOf(call: RankCall): readonly RankCall[] {
  return call.collective === "capture" ? (call.recorded?.calls ?? []) : [call];
}

function prefixOf({ collective }: Pick<RankCall, "collective">, index: number): string {
  return collective === "capture" ? `calls[${index}].` : "";
}

function lengthsOf({ collective, rank, count, root, ...call }: RankCall): Lengths | null {
  const { sendCounts, recvCounts } = call;
  const isTransposed = ["allToAllv", "gather", "scatter"].includes(collective);
  return isTransposed ? { collective, rank, count, root, sendCounts, recvCounts } : null;
}

/** The signatures agree by now, so that all ranks mean the same collectives. */
function lengthsFault(told: readonly Told[]): Mismatch | undefined {
  const [first] = told;
  const collective = first?.signature[0]?.[1] as RankCall["collective"];
  for (const index of first?.lengths.keys() ?? []) {
    const calls = told.flatMap(({ lengths }) => lengths[index] ?? []);
    const fault = calls.length < told.length ? undefined : transposeFault(calls);
    if (fault !== undefined) {
      return { ...fault, field: prefixOf({ collective }, index) + fault.field };
    }
  }
  return undefined;
}
