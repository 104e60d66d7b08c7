/**
 * Node's diagnostics channels: `tracing:twinccl:<collective>:start` when a call is posted, `:asyncEnd` when it is
 * settled, `:error` before that when it failed. An operation has one message for all of them, an `OpInfo` on which subscribers
 * may keep data, and which gets the `error`; a group has a message beside its calls, with their number as its
 * count. Nothing happens without subscribers, or in a runtime without channels.
 *
 * A call to channels without subscribers when it was posted publishes nothing, also not its end. One with a published
 * beginning has its end published, to the subscribers of that time: a channel's receivers are its runtime's decision.
 */
import type { CollectiveName } from "../collectives/spec.ts";
import type { OpInfo } from "../hooks.ts";

interface Channel {
  readonly hasSubscribers: boolean;
  publish(message: object): void;
}

interface TracingChannel {
  readonly start: Channel;
  readonly asyncEnd: Channel;
  readonly error: Channel;
}

interface ChannelModule {
  tracingChannel(name: string): TracingChannel;
}

interface Runtime {
  readonly process?: { getBuiltinModule?: (name: string) => unknown };
}

/** The message of one operation. */
export interface Diagnostics {
  /** Publishes its beginning; what is returned publishes its end, in the same message, with the number that it got. */
  start(info: OpInfo): (call: number, error: unknown) => void;
}

/** The channels of a collective. */
export class Channels implements Diagnostics {
  readonly #start: Channel;
  readonly #end: Channel;
  readonly #error: Channel;

  constructor({ start, asyncEnd, error }: TracingChannel) {
    this.#start = start;
    this.#end = asyncEnd;
    this.#error = error;
  }

  /** Runs at every call: checks each channel, not the many in which a runtime ties them up. */
  get haveListeners(): boolean {
    return this.#start.hasSubscribers || this.#end.hasSubscribers || this.#error.hasSubscribers;
  }

  start(info: OpInfo): (call: number, error: unknown) => void {
    const message: { call: number; error?: unknown } = { ...info };
    this.#start.publish(message);
    return (call, error) => {
      message.call = call;
      if (error !== undefined) {
        message.error = error;
        this.#error.publish(message);
      }
      this.#end.publish(message);
    };
  }
}

const known = new Map<CollectiveName, Channels | "none">();

/** The channels of a collective; `undefined` without subscribers. */
export function diagnosticsOf(collective: CollectiveName): Diagnostics | undefined {
  const channels = channelsOf(collective);
  return channels?.haveListeners ? channels : undefined;
}

/** The channels of a collective, with or without subscribers; `undefined` in a runtime without them. */
export function channelsOf(collective: CollectiveName): Channels | undefined {
  let channels = known.get(collective);
  if (channels === undefined) {
    channels = open(collective);
    known.set(collective, channels);
  }
  return channels === "none" ? undefined : channels;
}

function open(collective: CollectiveName): Channels | "none" {
  const runtime = (globalThis as Runtime).process;
  const module = runtime?.getBuiltinModule?.("node:diagnostics_channel") as
    | ChannelModule
    | undefined;
  return module === undefined
    ? "none"
    : new Channels(module.tracingChannel(`twinccl:${collective}`));
}
