/** Jobs on fake GPUs whose ranks joined as processes of their own do. */
import { type ConnectedCommunicator, connect, type Session } from "twinccl";
import type { Checks } from "../../../src/backends/nccl/comparisons.ts";
import { openJoined } from "../../../src/backends/nccl/open.ts";
import type { Membership } from "../../../src/backends/nccl/rendezvous/index.ts";
import type { NcclSession } from "../../../src/backends/nccl/session.ts";
import type { FakeGpus } from "../../support/fake-gpus/index.ts";
import { within } from "../../support/planted.ts";
import { place } from "../nccl-rendezvous/stores.ts";
import { cleanGpus } from "./gpus.ts";

/** One rank of a job, and what it asked of the others. */
export interface Joined {
  readonly comm: ConnectedCommunicator;
  readonly session: NcclSession;
  /** Keys of the exchanges about calls. */
  readonly compared: string[];
}

/** Joins all ranks of a job, each as a process of its own would. */
export async function joinAll(
  size: number,
  checks?: Checks,
  gpus: FakeGpus = cleanGpus(),
): Promise<Joined[]> {
  const members = await (await place(size)).joinAll();
  return Promise.all(
    members.map(async (member, rank): Promise<Joined> => {
      const compared: string[] = [];
      let session: NcclSession | undefined;
      const comm = await connect({
        backend: {
          name: "nccl",
          probe: () => ({ ok: true, reason: "fake GPUs" }),
          open: () => Promise.reject(new Error("this backend only joins")),
          join: async (request) => {
            const setup = { ...gpus.setup, checks };
            const watched = noting(member, compared);
            session = await openJoined(setup, { device: rank }, watched, request);
            return waitingInSplits(session, gpus);
          },
        },
        timeoutMs: 5_000,
      });
      return { comm, session: session as unknown as NcclSession, compared };
    }),
  );
}

/** A session whose ranks leave a split when all have come, for which NCCL blocks their threads: here they share one. */
function waitingInSplits(session: NcclSession, { nccl }: FakeGpus): Session {
  const split = session.split.bind(session);
  const isOpen = (): boolean => [...nccl.ends.values()].some(({ clique }) => !clique.isWhole);
  return Object.assign<Session, Pick<Session, "split">>(session, {
    async split(set, children) {
      split(set, children);
      while (isOpen()) await new Promise((resolve) => setImmediate(resolve));
    },
  });
}

/** A membership whose exchanges about calls are noted. */
function noting(member: Membership, compared: string[]): Membership {
  return new Proxy(member, {
    get(target, name) {
      const value = Reflect.get(target, name, target) as unknown;
      if (name !== "exchange") return typeof value === "function" ? value.bind(target) : value;
      return (key: string, ...rest: [Uint8Array]) => {
        if (key.startsWith("call ")) compared.push(key);
        return target.exchange(key, ...rest);
      };
    },
  });
}

/** Has every rank make the same call. */
export function onAll<T>(ranks: readonly Joined[], call: (joined: Joined) => PromiseLike<T>) {
  return within(5000, Promise.all(ranks.map(call)));
}

/** Has every rank close its end. */
export const closeAll = (ranks: readonly Joined[]) => onAll(ranks, ({ comm }) => comm.close());
