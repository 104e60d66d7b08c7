/**
 * Node's diagnostics channels: `tracing:twinccl:<collective>:start` when a call is posted, `:asyncEnd` when it is
 * settled, `:error` before that when it failed. Messages are `OpInfo`; a group is told beside its calls, and its count is
 * how many they are. Nothing happens without subscribers, or in a
 * runtime without channels.
 */
import type { CollectiveName } from "../collectives/spec.ts";
import type { OpInfo } from "../hooks.ts";

interface Channel {
  publish(message: object): void;
}

interface TracingChannel {
  readonly hasSubscribers: boolean;
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

/** What is told about one operation. */
export interface Diagnostics {
  start(info: OpInfo): void;
  end(info: OpInfo, error: unknown): void;
}

const known = new Map<
  CollectiveName,
  { channel: TracingChannel; diagnostics: Diagnostics } | undefined
>();

/** Where to tell about a collective; `undefined` when nobody listens. */
export function diagnosticsOf(collective: CollectiveName): Diagnostics | undefined {
  if (!known.has(collective)) known.set(collective, open(collective));
  const entry = known.get(collective);
  return entry?.channel.hasSubscribers === true ? entry.diagnostics : undefined;
}

function open(
  collective: CollectiveName,
): { channel: TracingChannel; diagnostics: Diagnostics } | undefined {
  const runtime = (globalThis as Runtime).process;
  const module = runtime?.getBuiltinModule?.("node:diagnostics_channel") as
    | ChannelModule
    | undefined;
  if (module === undefined) return undefined;
  const channel = module.tracingChannel(`twinccl:${collective}`);
  const diagnostics: Diagnostics = {
    start: (info) => channel.start.publish({ ...info }),
    end: (info, error) => {
      if (error !== undefined) channel.error.publish({ ...info, error });
      channel.asyncEnd.publish({ ...info, error });
    },
  };
  return { channel, diagnostics };
}
