/** Split: one communicator becomes several, by color. */
import type { CallSet, CommInfo, RankCall } from "../backend.ts";
import type { SplitArgs } from "../calls.ts";
import type { Communicator } from "../communicator.ts";
import type { Prepared } from "./prepared.ts";
import type { Validator } from "./validate.ts";

/** Checks a split: color and key are integers, and a color of `undefined` joins nothing. */
export function prepareSplit(
  check: Validator,
  args: SplitArgs,
  childOf: (call: RankCall) => Communicator | undefined,
): Prepared<Communicator | undefined> {
  check.begin("split", args);
  const { color, key = 0 } = args;
  if (color !== undefined) check.integer("color", color, 0);
  check.integer("key", key, Number.MIN_SAFE_INTEGER);
  return {
    call: { count: 0, split: { color, key } },
    signature: [["collective", "split"]],
    resultOf: childOf,
  };
}

/** The communicators that a complete split makes, by ascending color; members by key, then by rank. */
export function splitGroups({ calls }: CallSet): { color: number; members: RankCall[] }[] {
  const groups = new Map<number, RankCall[]>();
  for (const call of calls) {
    const color = call.split?.color;
    if (color === undefined) continue;
    const group = groups.get(color);
    if (group === undefined) groups.set(color, [call]);
    else group.push(call);
  }
  const keyOf = (call: RankCall): number => call.split?.key ?? 0;
  return [...groups]
    .sort(([a], [b]) => a - b)
    .map(([color, members]) => ({
      color,
      members: members.sort((a, b) => keyOf(a) - keyOf(b) || a.rank - b.rank),
    }));
}

/** The communicator of one group. */
export function childInfo(
  parent: CommInfo,
  id: number,
  color: number,
  members: RankCall[],
): CommInfo {
  const ranks = members.map(({ rank }) => parent.ranks[rank] as number);
  return { id, name: `${parent.name}/${color}`, ranks };
}
