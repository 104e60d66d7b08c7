/** Observers of a rank's calls: hooks, Node's diagnostics channels and counters. */
import type { RankCall } from "../backend.ts";
import type { Caller } from "../errors.ts";
import type { HookList, OpInfo } from "../hooks.ts";
import { bytesSent, type Posting } from "../ledger/posting.ts";
import type { Operation } from "../op.ts";
import { runtimeProcess } from "../runtime-process.ts";
import type { CollectiveName } from "../specification.ts";

/** The message of one operation, at every moment: its number is corrected where others were posted before it. */
type MutableInfo = OpInfo & { call: number };

/**
 * Calls the hooks before a call, which will get `number`, and at its end the hooks after it that are present now. `channels` is
 * left out without subscribers. Each hook before a call has its hook after it, also where one throws: the call fails with that.
 */
export function notifyPosted(
  hooks: HookList,
  { comm, rank }: Caller,
  { call, op }: Pick<Posting, "call" | "op">,
  number: number,
  channels: Channels | undefined,
): void {
  const { collective, dtype, count } = call;
  const { place } = op;
  const info: MutableInfo = { comm, rank, call: number, collective, dtype, count, place };
  const notifyEnd = hooks.afterNotifier();
  try {
    hooks.notifyBefore(info);
  } finally {
    if (channels !== undefined) publish(channels, info, op);
    op.whenSettled((error) => notifyEnd(numbered(info, op), error));
  }
}

/** Publishes a group with a first call that will be `number`; hooks and counts have its parts. */
export function publishGroup(
  { comm, rank }: Caller,
  op: Operation,
  calls: number,
  number: () => number,
): void {
  const channels = subscribedChannels("group");
  if (channels === undefined) return;
  const { place } = op;
  const info = { comm, rank, collective: "group", dtype: undefined, count: calls, place } as const;
  publish(channels, { ...info, call: number() }, op);
}

/** Publishes the beginning of an operation, and its end in the same message, with the number that it got. */
function publish({ onStart, onEnd, onError }: Channels, info: OpInfo, op: Operation): void {
  const message: MutableInfo & { error?: unknown } = { ...info };
  onStart.publish(message);
  op.whenFinal((error) => {
    numbered(message, op);
    if (error !== undefined) {
      message.error = error;
      onError.publish(message);
    }
    onEnd.publish(message);
  });
}

/** Corrects the number to that of the operation, if it was posted. */
function numbered(info: MutableInfo, { call }: Operation): OpInfo {
  if (call >= 0) info.call = call;
  return info;
}

// Node's diagnostics channels: `tracing:twinccl:<collective>:start` when a call is posted, `:asyncEnd` when it is settled,
// `:error` before that when it failed. An operation has one message for all channels: an `OpInfo` that subscribers may extend,
// and that receives the `error`. A group has a separate message besides its calls, with the number of its calls as its count.
// Nothing happens without subscribers, or in a runtime without channels.
//
// A call whose channels have no subscribers when it is posted publishes nothing, also not its end. One with a published
// beginning has its end published, to the subscribers of that time.

interface Channel {
  readonly hasSubscribers: boolean;
  publish(message: object): void;
}

/** The channels of a collective: every call reads whether each of them has subscribers. */
export interface Channels {
  readonly onStart: Channel;
  readonly onEnd: Channel;
  readonly onError: Channel;
}

const channelModule = runtimeProcess()?.getBuiltinModule?.("node:diagnostics_channel");

const known = new Map<CollectiveName, Channels>();

/** The channels of a collective that have subscribers; `undefined` without any. */
export function subscribedChannels(collective: CollectiveName): Channels | undefined {
  const channels = channelsOf(collective);
  if (channels === undefined) return undefined;
  const { onStart, onEnd, onError } = channels;
  const areHeard = onStart.hasSubscribers || onEnd.hasSubscribers || onError.hasSubscribers;
  return areHeard ? channels : undefined;
}

/** The channels of a collective, with or without subscribers; `undefined` in a runtime without them. */
export function channelsOf(collective: CollectiveName): Channels | undefined {
  let channels = known.get(collective);
  if (channels === undefined && channelModule !== undefined) {
    const { start, asyncEnd, error } = channelModule.tracingChannel(`twinccl:${collective}`);
    channels = { onStart: start, onEnd: asyncEnd, onError: error };
    known.set(collective, channels);
  }
  return channels;
}

// Counters.

/** Calls of one collective. */
export interface Counter {
  calls: number;
  sendBytes: number;
}

/** Counts the calls of one rank. */
export class CallStats {
  readonly #counters = new Map<string, Counter>();

  /** A call was posted. */
  record(call: RankCall): void {
    const counter = this.counterOf(call.collective);
    counter.calls++;
    counter.sendBytes += bytesSent(call.collective, call);
  }

  /** Where the calls of a collective are counted. */
  counterOf(collective: string): Counter {
    let counter = this.#counters.get(collective);
    if (counter === undefined) {
      counter = { calls: 0, sendBytes: 0 };
      this.#counters.set(collective, counter);
    }
    return counter;
  }

  /** The counts so far. */
  totals(): { calls: Record<string, number>; sendBytes: number } {
    const calls: Record<string, number> = {};
    let sendBytes = 0;
    for (const [collective, counter] of this.#counters) {
      if (counter.calls > 0) calls[collective] = counter.calls;
      sendBytes += counter.sendBytes;
    }
    return { calls, sendBytes };
  }
}
