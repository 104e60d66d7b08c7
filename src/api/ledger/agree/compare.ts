/**
 * Do the ranks mean the same call? Finds the first field that differs and the ranks that stand alone with it.
 *
 * NCCL calls a mismatch undefined behaviour. Here it is an error on every rank, found before a byte moves.
 */
import type { CommInfo, RankCall } from "../../backend.ts";
import { type ErrorText, numbersText, rankRows, ranksText } from "../../error-text.ts";
import { CollectiveMismatchError } from "../../errors.ts";
import type { Meeting } from "../calls/batch.ts";
import type { Posting, SignatureField } from "../calls/posting.ts";
import type { Slot } from "../calls/slot.ts";

/** A call in a few words. */
export interface CallWords {
  /** The operation and its sizes. */
  readonly call: string;
  /** Where it was made, as `file:line:column`, if that is kept. */
  readonly place: string | undefined;
}

/** A difference between the ranks of one call. */
export interface Mismatch {
  readonly field: string;
  /** The ranks that differ from most others. */
  readonly ranks: readonly number[];
  /** Each rank's value, by rank. */
  readonly values: readonly string[];
  /** Each rank's call, where ranks of other processes are compared. */
  readonly calls?: readonly CallWords[];
  /** The law, where it is not equality, and the way to meet it. */
  readonly law?: string;
  readonly cure?: string;
}

/** The first difference between the postings of a complete slot; `undefined` when they agree. */
export function mismatchOf(slot: Slot): Mismatch | undefined {
  const { posted, postings } = slot;
  // Of one rank there is nothing to compare.
  const differs =
    posted.length === 1
      ? undefined
      : signatureMismatch(posted.map(({ prepared }) => prepared.signature));
  return (
    differs ?? (posted.length < postings.length ? undefined : transposeFault(posted.map(callOf)))
  );
}

function callOf({ call }: Posting): RankCall {
  return call;
}

/** The first field in which signatures differ, given by rank. */
export function signatureMismatch(
  signatures: readonly (readonly SignatureField[])[],
): Mismatch | undefined {
  const first = signatures[0] ?? [];
  for (let field = 0; field < first.length; field++) {
    const expected = first[field]?.[1];
    if (signatures.some((signature) => signature[field]?.[1] !== expected)) {
      return differingField(signatures, field);
    }
  }
  return undefined;
}

function differingField(
  signatures: readonly (readonly SignatureField[])[],
  field: number,
): Mismatch {
  const values = signatures.map((signature) => String(signature[field]?.[1]));
  const name = signatures[0]?.[field]?.[0] ?? "collective";
  return { field: name, values, ranks: outliers(values) };
}

/** The mismatch of values that should be equal on all ranks; `undefined` when they are. */
export function differing(field: string, values: readonly string[]): Mismatch | undefined {
  if (values.every((value) => value === values[0])) return undefined;
  return { field, values, ranks: outliers(values) };
}

/** Ranks with another value than the most common one; of equally common values the one seen first is the norm. */
function outliers(values: readonly string[]): number[] {
  const counts = new Map<string, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  let norm = values[0] ?? "";
  for (const [value, count] of counts) {
    if (count > (counts.get(norm) ?? 0)) norm = value;
  }
  return values.flatMap((value, rank) => (value === norm ? [] : [rank]));
}

/** The field of a call that holds the lengths of its blocks. */
export type Lengths = Pick<
  RankCall,
  "collective" | "rank" | "count" | "root" | "sendCounts" | "recvCounts"
>;

/** Lengths that must fit each other across ranks without being equal. */
export function transposeFault(calls: readonly Lengths[]): Mismatch | undefined {
  const root = calls[calls[0]?.root ?? -1];
  switch (calls[0]?.collective) {
    case "allToAllv":
      return calls[0].recvCounts === undefined ? undefined : allToAllvFault(calls);
    case "gather":
      return rootedFault(calls, root, "recvCounts", "sends");
    case "scatter":
      return rootedFault(calls, root, "sendCounts", "receives");
    default:
      return undefined;
  }
}

/** With counts given on both sides, what i sends to j must be what j expects from i. */
function allToAllvFault(calls: readonly Lengths[]): Mismatch | undefined {
  for (let from = 0; from < calls.length; from++) {
    for (let to = 0; to < calls.length; to++) {
      const sent = calls[from]?.sendCounts?.[to];
      const expected = calls[to]?.recvCounts?.[from];
      if (sent === expected) continue;
      return {
        field: `sendCounts[${to}]`,
        ranks: [...new Set([from, to])].sort((a, b) => a - b),
        values: calls.map((_, rank) => {
          if (rank === from) return `sends ${sent} to rank ${to}`;
          return rank === to ? `expects ${expected} from rank ${from}` : "-";
        }),
        law: `sendCounts[${to}] of rank ${from} must equal recvCounts[${from}] of rank ${to}`,
        cure: "recvCounts say what the others send; leave them out on all ranks to have them exchanged",
      };
    }
  }
  return undefined;
}

/** Each rank's length must be what the root has for it. */
function rootedFault(
  calls: readonly Lengths[],
  root: Lengths | undefined,
  field: "recvCounts" | "sendCounts",
  verb: string,
): Mismatch | undefined {
  const counts = root?.[field] ?? [];
  const rank = calls.findIndex((call) => call.count !== counts[call.rank]);
  if (root === undefined || rank < 0) return undefined;
  return {
    field: `${field}[${rank}]`,
    ranks: [rank],
    values: calls.map((call) => `${verb} ${call.count}, the root has ${counts[call.rank]}`),
    law: `the count of rank ${rank} must equal ${field}[${rank}] of the root, rank ${root.rank}`,
    cure: `lengths that differ are the root's to say: ${field}, one a rank`,
  };
}

const sameCalls = "make the same call on every rank, with equal arguments";

/** The error that each rank gets for a mismatch. All say the same. */
export function mismatchErrors(
  slot: Slot,
  mismatch: Mismatch,
): (rank: number) => CollectiveMismatchError {
  const { field, ranks, values, law, cure = sameCalls } = mismatch;
  const { calls = slot.postings.map(callWords) } = mismatch;
  const { name } = slot.comm;
  const rows = values.map((value, rank) => {
    const { call = "-", place = "" } = calls[rank] ?? {};
    return { rank, cells: [call, value, place] };
  });
  const heading = calls.some(({ place }) => place !== undefined) ? ["made at"] : [];
  const text: ErrorText = {
    headline: `call ${slot.number} on "${name}": ${ranksText(ranks)} ${ranks.length === 1 ? "differs" : "differ"} in ${field}${
      law === undefined ? "" : `: ${law}`
    }`,
    table: [["rank", "call", field, ...heading], ...rankRows(rows, numbersText)],
    hint: `nothing was written; ${cure}`,
  };
  return (rank) =>
    new CollectiveMismatchError(text, {
      ...{ rank, size: calls.length, comm: name },
      collective: slot.postings[rank]?.call.collective,
      ...{ call: slot.number, ranks, field, values },
    });
}

/** The error of a send and a receive that do not fit; `undefined` when they do. */
export function transferMismatch(
  comm: CommInfo,
  { send, recv }: Meeting,
): ((posting: Posting) => CollectiveMismatchError) | undefined {
  const from = send.call;
  const to = recv.call;
  const field = from.dtype !== to.dtype ? "dtype" : "count";
  const values = [`${from[field]}`, `${to[field]}`];
  const cure =
    field === "dtype"
      ? `receive into ${from.dtype}, as it is sent`
      : "lengths are a law: take a subarray of the longer side";
  if (values[0] === values[1]) return undefined;
  const places = [send.op.place, recv.op.place];
  const heading = places.every((place) => place === undefined) ? [] : ["made at"];
  const ranks = [...new Set([from.rank, to.rank])].sort((a, b) => a - b);
  return ({ op, call }) =>
    new CollectiveMismatchError(
      {
        headline: `send and receive on "${comm.name}" differ in ${field}`,
        table: [
          ["rank", "call", field, ...heading],
          [from.rank, `send to ${to.rank}`, values[0] as string, places[0] ?? ""],
          [to.rank, `receive from ${from.rank}`, values[1] as string, places[1] ?? ""],
        ],
        hint: `nothing was written; ${cure}`,
      },
      {
        rank: op.rank,
        size: comm.ranks.length,
        comm: comm.name,
        collective: call.collective,
        call: op.call,
        ranks,
        field,
        values,
      },
    );
}

/** The cells of a call in the table of a mismatch. */
export function callWords(posting: Posting | undefined): CallWords {
  if (posting === undefined) return { call: "-", place: undefined };
  const { call, op } = posting;
  const { collective, dtype, count } = call;
  return {
    call: dtype === undefined ? collective : `${collective} ${dtype}[${count}]`,
    place: op.place,
  };
}
