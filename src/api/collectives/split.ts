/** Split: one communicator becomes several, by color. */
import type { CallSet, CommInfo, RankCall } from "../backend.ts";
import type { SplitArgs } from "../calls.ts";
import type { Communicator } from "../communicator.ts";
import { knownOr } from "../known.ts";
import type { Prepared } from "../ledger/posting.ts";
import type { Validator } from "./validate.ts";

/** Checks a split: color and key are integers, and a color of `undefined` joins nothing. */
export function prepareSplit(
  check: Validator,
  args: SplitArgs,
  open: (comm: CommInfo) => Communicator,
): Prepared<Communicator | undefined> {
  // A missing name may be an omission; a rank that joins no communicator passes `undefined`.
  if (!("color" in args)) {
    throw check.fault("color", "it was left out", "a color", "color: undefined joins none");
  }
  const { color, key = 0, stream } = args;
  if (color !== undefined) check.integer("color", color, 0);
  check.integer("key", key, Number.MIN_SAFE_INTEGER);
  const ownStream = check.ownStream(stream);
  return {
    call: { count: 0, split: { color, key, ownStream } },
    signature: [
      ["collective", "split"],
      ["stream", stream ?? "shared"],
    ],
    toResult: (call) => {
      const comm = children.get(call);
      return comm && open(comm);
    },
  };
}

/** The color and key of one rank of a communicator in a split. */
export interface SplitRequest {
  readonly rank: number;
  /** `undefined` joins nothing. */
  readonly color: number | undefined;
  readonly key: number;
}

/** The colors and keys of the ranks of this process. */
export function splitRequests({ calls }: CallSet): SplitRequest[] {
  return calls.map(({ rank, split }) => ({ rank, color: split?.color, key: split?.key ?? 0 }));
}

/** The communicators that a split makes, by ascending color; members by key, then by rank. */
export function splitGroups(
  requests: readonly SplitRequest[],
): { color: number; ranks: number[] }[] {
  const groups = new Map<number, SplitRequest[]>();
  for (const request of requests) {
    if (request.color === undefined) continue;
    knownOr(groups, request.color, () => []).push(request);
  }
  return [...groups]
    .sort(([a], [b]) => a - b)
    .map(([color, members]) => ({
      color,
      ranks: members.sort((a, b) => a.key - b.key || a.rank - b.rank).map(({ rank }) => rank),
    }));
}

/**
 * The name of the child of the parent's `nth` split for a color, equal in all processes. All members of the parent count the
 * same splits: its own, and none of other communicators.
 */
export function childName({ name }: CommInfo, color: number, nth: number): string {
  return nth === 1 ? `${name}/${color}` : `${name}/${color}#${nth}`;
}

/** The communicator of one group; its members are ranks of the parent. */
export function childInfo(
  parent: CommInfo,
  id: number,
  name: string,
  members: readonly number[],
  ownStream: boolean,
): CommInfo {
  const isWhole = parent.local.length === parent.ranks.length;
  return {
    id,
    name,
    ranks: members.map((rank) => parent.ranks[rank] as number),
    local: members.flatMap((rank, child) =>
      isWhole || parent.local.includes(rank) ? [child] : [],
    ),
    ...(ownStream ? { ownStream } : {}),
  };
}

/** The communicators that splits gave to ranks; none for a rank without a color. */
const children = new WeakMap<RankCall, CommInfo>();

/** Notes the communicator that each call of a split gets; `ranks` are its members in the parent. */
export function noteChildren(
  { calls }: CallSet,
  created: readonly { readonly comm: CommInfo; readonly ranks: readonly number[] }[],
): void {
  const byRank = new Map(calls.map((call) => [call.rank, call]));
  for (const { comm, ranks } of created) {
    for (const rank of ranks) {
      const call = byRank.get(rank);
      if (call !== undefined) children.set(call, comm);
    }
  }
}
