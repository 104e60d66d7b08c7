/** The names that each call takes, and the messages about others. */
import type * as calls from "./calls.ts";
import { namesText, nearest } from "./nearest.ts";
import type { CollectiveName } from "./specification.ts";

/** The arguments of every call that takes them by name. */
interface ArgumentsOf extends Record<CollectiveName, object> {
  readonly allReduce: calls.AllReduceArgs;
  readonly reduce: calls.ReduceArgs;
  readonly broadcast: calls.BroadcastArgs;
  readonly allGather: calls.AllGatherArgs;
  readonly allGatherv: calls.AllGathervArgs;
  readonly reduceScatter: calls.ReduceScatterArgs;
  readonly reduceScatterv: calls.ReduceScattervArgs;
  readonly allToAll: calls.AllToAllArgs;
  readonly allToAllv: calls.AllToAllvArgs;
  readonly gather: calls.GatherArgs;
  readonly scatter: calls.ScatterArgs;
  readonly barrier: calls.CallOptions;
  readonly send: calls.SendArgs;
  readonly recv: calls.RecvArgs;
  readonly sendRecv: calls.SendRecvArgs;
  readonly split: calls.SplitArgs;
  readonly replay: calls.CallOptions;
}

const options = { signal: true, timeoutMs: true } as const;
const moved = { send: true, recv: true } as const;
const blocksSent = { sendCounts: true, sendOffsets: true } as const;
const blocksReceived = { recvCounts: true, recvOffsets: true } as const;

/** Total tables: a name that is left out does not compile. */
export const argumentNames: {
  readonly [C in CollectiveName]: Readonly<Record<keyof ArgumentsOf[C], true>>;
} = {
  allReduce: { ...moved, op: true, ...options },
  reduce: { ...moved, op: true, root: true, ...options },
  broadcast: { ...moved, root: true, ...options },
  allGather: { ...moved, ...options },
  allGatherv: { ...moved, ...blocksReceived, ...options },
  reduceScatter: { ...moved, op: true, ...options },
  reduceScatterv: { ...moved, op: true, sendCounts: true, ...options },
  allToAll: { ...moved, ...options },
  allToAllv: { ...moved, ...blocksSent, ...blocksReceived, ...options },
  gather: { ...moved, root: true, ...blocksReceived, ...options },
  scatter: { ...moved, root: true, ...blocksSent, ...options },
  barrier: options,
  send: { send: true, peer: true, ...options },
  recv: { recv: true, peer: true, ...options },
  sendRecv: { ...moved, to: true, from: true, ...options },
  split: { color: true, key: true, stream: true, ...options },
  replay: options,
  group: {},
  capture: {},
};

/** True for the name of something that a rank can post. */
export function isCollectiveName(name: unknown): name is CollectiveName {
  return typeof name === "string" && Object.hasOwn(argumentNames, name);
}

/** Calls that take an unknown argument, and do nearly the same. */
const siblings: Partial<Readonly<Record<CollectiveName, CollectiveName>>> = {
  allToAll: "allToAllv",
  allGather: "allGatherv",
  reduceScatter: "reduceScatterv",
  allReduce: "reduce",
  send: "sendRecv",
  recv: "sendRecv",
};

/** Names of a rank in other calls, or in other libraries. */
const otherWords: Readonly<Record<string, readonly string[]>> = {
  to: ["peer"],
  from: ["peer"],
  peer: ["to", "from"],
  src: ["root", "peer", "from"],
  dst: ["root", "peer", "to"],
};

/** The remedy for a name that a call does not take: another name, or another call. */
export function inPlaceOf(
  name: string,
  collective: CollectiveName,
): { readonly needed: string; readonly hint: string | undefined } {
  const known = Object.keys(argumentNames[collective]);
  const meant = Object.hasOwn(otherWords, name) ? otherWords[name] : undefined;
  const near = meant?.filter((each) => known.includes(each)) ?? nearest(name, known);
  const hints = near.length === 0 ? [] : [`write ${near.join(", ")}`];
  const sibling = siblings[collective];
  const more = sibling === undefined ? [] : Object.keys(argumentNames[sibling]);
  const [there] = nearest(
    name,
    more.filter((each) => !known.includes(each)),
  );
  if (there !== undefined) hints.push(`${sibling} takes ${there}`);
  return {
    needed: `one of ${namesText(name, known, near)}`,
    hint: hints.length === 0 ? undefined : hints.join("; "),
  };
}
