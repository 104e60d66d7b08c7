/** Jobs on fake GPUs, with ranks that joined as processes of their own do. */
import { type CommError, type Communicator, type ConnectedCommunicator, connect } from "twinccl";
import type { NcclJobSession } from "../../../../../src/backends/nccl/job-session.ts";
import { openJoined } from "../../../../../src/backends/nccl/open.ts";
import type { CompareCalls } from "../../../../../src/job/before-calls.ts";
import type { Membership } from "../../../../../src/job/rendezvous.ts";
import type { FakeGpus } from "../../../../support/fake-gpus/index.ts";
import { within } from "../../../../support/planted.ts";
import { place } from "../../../job/stores.ts";
import { cleanGpus, turns } from "../gpus.ts";

/** One rank of a job, and its queries to the others. */
export interface Joined {
  readonly comm: ConnectedCommunicator;
  readonly session: NcclJobSession;
  readonly membership: Membership;
  /** Keys of the exchanges about calls. */
  readonly compared: string[];
  /** Keys of its barriers. */
  readonly met: string[];
}

/** Joins all ranks of a job, each as a process of its own would, with memberships that are given or made. */
export async function joinAll(
  size: number,
  compareCalls?: CompareCalls,
  gpus: FakeGpus = cleanGpus(),
  timeoutMs = 5_000,
  given?: readonly Membership[],
): Promise<Joined[]> {
  const members = given ?? (await (await place(size)).joinAll());
  return Promise.all(
    members.map(async (member, rank): Promise<Joined> => {
      const [compared, met]: [string[], string[]] = [[], []];
      let session: NcclJobSession | undefined;
      const comm = await connect({
        backend: {
          name: "nccl",
          probe: () => ({ ok: true, reason: "fake GPUs" }),
          open: () => Promise.reject(new Error("this backend only joins")),
          join: async (request) => {
            const setup = { ...gpus.setup, compareCalls };
            const watched = noting(member, compared, met);
            session = await openJoined(setup, { device: rank }, watched, request);
            return session;
          },
        },
        timeoutMs,
      });
      const opened = session as unknown as NcclJobSession;
      return { comm, session: opened, membership: member, compared, met };
    }),
  );
}

/** A membership that records exchanges about calls, and barriers. */
function noting(member: Membership, compared: string[], met: string[]): Membership {
  const exchange: Membership["exchange"] = (key, ...rest) => {
    if (key.startsWith("call ")) compared.push(key);
    return member.exchange(key, ...rest);
  };
  const awaitBarriers: Membership["awaitBarriers"] = (meetings, ...rest) => {
    met.push(...meetings.map(({ key }) => key));
    return member.awaitBarriers(meetings, ...rest);
  };
  const noted: Partial<Membership> = { exchange, awaitBarriers };
  return new Proxy(member, {
    get(target, name) {
      const value = Reflect.get(target, name, target) as unknown;
      const instead = noted[name as keyof Membership];
      return instead ?? (typeof value === "function" ? value.bind(target) : value);
    },
  });
}

/** The error of a call, soon; `undefined` where it did not fail. */
export function errorOf(op: PromiseLike<unknown>): Promise<CommError | undefined> {
  const error = Promise.resolve(op).then(
    () => undefined,
    (caught: CommError) => caught,
  );
  return within(20_000, error);
}

/** Has every rank make the same call. */
export function onAll<T>(ranks: readonly Joined[], call: (joined: Joined) => PromiseLike<T>) {
  return within(20_000, Promise.all(ranks.map(call)));
}

/** Has every rank close its end. */
export const closeAll = (ranks: readonly Joined[]) => onAll(ranks, ({ comm }) => comm.close());

/**
 * Closes ranks of which some have given up communicators that others have open still: a late call on them ends those too,
 * instead of waiting in NCCL's end for ranks that do not come.
 */
export async function closeRest(
  ranks: readonly Joined[],
  rest: readonly (Communicator | undefined)[] = ranks.map(({ comm }) => comm),
): Promise<void> {
  // The store notices waits that have ended.
  await turns();
  const late = rest.map((comm) => comm?.barrier({ timeoutMs: 50 }).then(null, () => undefined));
  await within(20_000, Promise.all(late));
  // The kernels leave the devices.
  await turns();
  await closeAll(ranks);
}
