/** Split: the session makes several communicators of one, by color. */
import type { CallSet, CommInfo, RankCall, Session } from "../backend.ts";
import { getOrCreate } from "../get-or-create.ts";
import type { CommState } from "./comm-state.ts";
import { andThen, exchange } from "./exchanges.ts";

/** Creates the communicators of a complete split in the session; each rank opens its own. */
export function split(state: CommState, set: CallSet): void | Promise<void> {
  const { session, world, comm: parent } = state;
  const nth = ++state.splits;
  const ownStream = set.calls[0]?.split?.ownStream === true;
  return andThen(gatherRequests(session, set), (requests) => {
    const children = splitGroups(requests).map(({ color, ranks }) => {
      const name = childName(parent, color, nth);
      return { comm: childInfo(parent, world.nextId++, name, ranks, ownStream), ranks };
    });
    const infos = children.map(({ comm }) => comm);
    return andThen(session.split(set, infos), () => {
      const byRank = new Map(set.calls.map((call) => [call.rank, call]));
      for (const { comm, ranks } of children) {
        for (const rank of ranks) {
          const call = byRank.get(rank);
          if (call !== undefined) joined.set(call, comm);
        }
      }
      world.created.push(...infos.filter(({ local }) => local.length > 0));
    });
  });
}

/** The communicators that splits gave to ranks; none for a rank without a color. */
const joined = new WeakMap<RankCall, CommInfo>();

/** The communicator that a rank's split gave to it. */
export function joinedComm(call: RankCall): CommInfo | undefined {
  return joined.get(call);
}

/** The color and key of one rank of a communicator in a split. */
interface SplitRequest {
  readonly rank: number;
  /** `undefined` joins nothing. */
  readonly color: number | undefined;
  readonly key: number;
}

/** The color and key of every rank, by rank: an all-gather of three int64, `joins`, `color` and `key`. */
function gatherRequests(session: Session, set: CallSet): SplitRequest[] | Promise<SplitRequest[]> {
  const own = set.calls.map(({ rank, split }): SplitRequest => {
    return { rank, color: split?.color, key: split?.key ?? 0 };
  });
  if (own.length === set.comm.ranks.length) return own;
  const outgoing = own.map(({ rank, color, key }) => ({
    rank,
    values: [color === undefined ? 0 : 1, color ?? 0, key],
  }));
  return andThen(exchange(session, set, "allGather", 3, outgoing), ([first = []]) =>
    set.comm.ranks.map((_, rank) => {
      const [joins, color, key = 0] = first.slice(3 * rank, 3 * rank + 3);
      return { rank, color: joins === 1 ? color : undefined, key };
    }),
  );
}

/** The communicators that a split makes, by ascending color; members by key, then by rank. */
function splitGroups(requests: readonly SplitRequest[]): { color: number; ranks: number[] }[] {
  const groups = new Map<number, SplitRequest[]>();
  for (const request of requests) {
    if (request.color === undefined) continue;
    getOrCreate(groups, request.color, () => []).push(request);
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
function childName({ name }: CommInfo, color: number, nth: number): string {
  return nth === 1 ? `${name}/${color}` : `${name}/${color}#${nth}`;
}

/** The communicator of one group; its members are ranks of the parent. */
function childInfo(
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
