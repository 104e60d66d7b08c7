/** Stores and ranks for tests; everything opened here is closed after the test. */
import { randomBytes } from "node:crypto";
import { CommError } from "twinccl";
import { afterEach } from "vitest";
import {
  type JoinOptions,
  type Membership,
  type Rendezvous,
  StoreServer,
  type StoreServerOptions,
  tcpRendezvous,
} from "../../../src/backends/nccl/rendezvous/index.ts";

const closers: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  await Promise.all(closers.splice(0).map((close) => close()));
});

/** Has something closed after the test. */
export function closeAfter(close: () => Promise<unknown>): void {
  closers.push(close);
}

/** A store that somebody else than a rank hosts, and the way to it. */
export interface Place {
  readonly server: StoreServer;
  readonly rendezvous: Rendezvous;
  readonly secret: string;
  readonly jobId: string;
  /** Joins all ranks. */
  joinAll(): Promise<Membership[]>;
  /** Joins one rank. */
  join(rank: number, options?: Partial<JoinOptions>): Promise<Membership>;
}

/** Opens a store for `size` ranks. */
export async function place(
  size: number,
  options: Partial<StoreServerOptions> = {},
): Promise<Place> {
  const secret = randomBytes(32).toString("hex");
  const jobId = "test-job";
  const server = await StoreServer.listen({ jobId, size, hosted: false, secret, ...options });
  closers.push(() => server.close());
  const rendezvous = tcpRendezvous({ port: server.port, secret, host: "other" });
  const join = async (rank: number, more: Partial<JoinOptions> = {}): Promise<Membership> => {
    const membership = await rendezvous.join({ jobId, rank, size, deadlineMs: 5_000, ...more });
    closers.push(() => membership.leave());
    return membership;
  };
  const joinAll = (): Promise<Membership[]> =>
    Promise.all(Array.from({ length: size }, (_, rank) => join(rank)));
  return { server, rendezvous, secret, jobId, join, joinAll };
}

/** Bytes of a text, and back. */
export const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
export const text = (value: Uint8Array): string => new TextDecoder().decode(value);

/** The error that a promise rejects with; a test fails when it does not. */
export async function errorOf(promise: Promise<unknown>): Promise<CommError> {
  const settled = await promise.then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  );
  if ("value" in settled) throw new Error(`resolved to ${String(settled.value)}`);
  if (settled.error instanceof CommError) return settled.error;
  throw settled.error;
}
