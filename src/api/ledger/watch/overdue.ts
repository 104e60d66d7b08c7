/** A call that was not done in time: the missing ranks, and the error. Ranks are those of the communicator. */
import type { CommInfo, Session } from "../../backend.ts";
import { ranksText } from "../../error-text.ts";
import { CommTimeoutError } from "../../errors.ts";
import type { Lines } from "../calls/lines.ts";
import type { Posting, TransferPosting } from "../calls/posting.ts";
import { headWait } from "../calls/waits.ts";

/** Calls that are not done: those in the ranks' lines, and those that the session has. */
export interface OpenCalls {
  readonly lines: Lines;
  readonly queued: { beside(posting: Posting): readonly Posting[] };
  /** A call of another communicator is what the process does first. */
  readonly areHeld: boolean;
}

/** The call that must be done first; `undefined` when none has a deadline. */
export function firstDue(postings: readonly Posting[]): Posting | undefined {
  const due = postings.filter(({ deadlinePs }) => deadlinePs !== undefined);
  return due.sort((a, b) => (a.deadlinePs ?? 0) - (b.deadlinePs ?? 0))[0];
}

/** The ranks of world ranks on a communicator that they are members of. */
export function ownRanks({ ranks }: CommInfo, worldRanks: readonly number[]): readonly number[] {
  const own = new Map(ranks.map((worldRank, rank) => [worldRank, rank]));
  return worldRanks.map((worldRank) => own.get(worldRank) ?? -1);
}

/** The ranks that a late call waited for, and the words about them. */
export interface Holdup {
  readonly ranks: readonly number[];
  readonly why: string;
  /** The remedy, where it is neither to look at those ranks nor to wait longer. */
  readonly next?: string;
}

/** Ranks that have not made a call; where there are none its work takes long. */
export function absent(ranks: readonly number[]): Holdup {
  const why = ranks.length > 0 ? `${ranksText(ranks)} had not made it` : "all ranks had made it";
  return { ranks, why };
}

/** The cause of a call's wait when its deadline passed: in a job of several processes by their own words. */
export async function holdupOf(
  session: Session,
  comm: CommInfo,
  posting: Posting,
  { lines, queued, areHeld }: OpenCalls,
): Promise<Holdup> {
  const { op } = posting;
  const isWaiting = op.status === "waiting";
  const here = isWaiting ? (headWait(comm, lines, op.rank)?.missing ?? []) : [];
  if (comm.local.length === comm.ranks.length) return absent(ownRanks(comm, here));
  const isInLine = isWaiting && (areHeld || !lines.isAtHead(op));
  const { peer } = posting as Partial<TransferPosting>;
  if (peer === undefined) {
    const { ranks, haveDiverged } = (await session.peers?.missingRanks(comm, op.call)) ?? {
      ranks: here,
    };
    if (haveDiverged === true) return apart;
    return ranks.length === 0 && isInLine ? inLine : absent(ownRanks(comm, ranks));
  }
  if (comm.local.includes(peer) && isWaiting && !isInLine) return absent([peer]);
  const together = [...lines.beside(posting), ...queued.beside(posting)] as TransferPosting[];
  const halves = together.filter((half) => !comm.local.includes(half.peer));
  const told = await session.peers?.missingEnds(comm, halves);
  const missing = told && ownRanks(comm, told);
  // One that is in line here is not made yet: for the others this rank is the one that lacks.
  const isUpToUs = missing?.every((rank) => rank === op.rank) === true;
  return isUpToUs && isInLine ? inLine : holdupOfMessage(peer, missing);
}

const inLine: Holdup = {
  ranks: [],
  why: "an earlier call of this rank kept it waiting",
  next: "give that one a deadline of its own, and its error names the missing ranks",
};

const apart: Holdup = {
  ranks: [],
  why: "all ranks had made it, but did not come together: one gave it up before, or their counts or new symmetric buffers are not alike",
  next: 'where nobody gave it up, compare its counts and buffers; nccl({ compareCalls: "always" }) says what differs before anything happens',
};

/** The same of a message; `missing` are the ranks that it, and those made with it, lack: `undefined` where they are unknown. */
function holdupOfMessage(peer: number, missing: readonly number[] | undefined): Holdup {
  if (missing === undefined) return absent([peer]);
  if (missing.length === 0) {
    const why = `rank ${peer} had made it too: it is slow, was given up there, or waits behind other calls`;
    return { ranks: [peer], why };
  }
  const isPeer = missing.length === 1 && missing[0] === peer;
  // Messages that were made together wait for each other, and may wait for ranks that wait for third ones.
  return isPeer
    ? absent(missing)
    : { ranks: missing, why: `${ranksText(missing)} kept it waiting` };
}

/** The error of a call that was not done in time. */
export function timeoutError(
  comm: CommInfo,
  posting: Posting,
  { ranks, why, next = nextStep(comm, ranks) }: Holdup,
  isVirtual: boolean,
): CommTimeoutError {
  const { op, call, calledAtPs, deadlinePs = 0 } = posting;
  const allowed = `${(deadlinePs - calledAtPs) / 1e9} ms`;
  const step = isVirtual ? "virtual time counts on the simulation" : next;
  return new CommTimeoutError(
    {
      headline: `${call.collective}: call ${op.call} on "${comm.name}" was not done within ${allowed}: ${why}`,
      hint: `the communicator was aborted; ${step}`,
    },
    {
      rank: op.rank,
      size: comm.ranks.length,
      comm: comm.name,
      collective: call.collective,
      call: op.call,
      ranks,
    },
  );
}

/** The remedy where time is real. Logs and processes go by the ranks of the world. */
function nextStep({ ranks, local }: CommInfo, missing: readonly number[]): string {
  if (missing.length === 0) {
    return "its work, or that of a call right behind it, took longer: allow more with timeoutMs, or look at what else the devices and the network are busy with";
  }
  const those = ranksText(missing.map((rank) => ranks[rank] as number));
  return local.length === ranks.length
    ? `look at what ${those} of the world did instead, then go on with world.rebuild()`
    : `look at the logs of ${those} of the job, then go on with the survivors by comm.rebuild()`;
}
