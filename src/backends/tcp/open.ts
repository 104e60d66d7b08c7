/** Opens sessions: a rank of its own, or one rank of a job. */
import { createSocket } from "node:dgram";
import { isIPv6 } from "node:net";
import type { CommInfo, JoinRequest } from "../../api/backend-entry.ts";
import { BackendUnavailableError } from "../../api/index.ts";
import { type LauncherEnvironment, withoutBrackets } from "../../api/world/launchers.ts";
import type { CompareCalls } from "../../job/before-calls.ts";
import { isOwnName, numericAddress } from "../../job/checks.ts";
import { faultOf, isOutOfFiles, outOfFilesHint } from "../../job/connection.ts";
import { openJob, type SessionOpener } from "../../job/job.ts";
import type { OpenBounds } from "../../job/rebuild.ts";
import type { Membership } from "../../job/rendezvous.ts";
import { MessageBlocks } from "./message-blocks.ts";
import { type PeerSettings, Peers } from "./peers.ts";
import { type SessionSettings, TcpJobSession, TcpSession } from "./session.ts";

/** Settings of a job. */
export interface JobSetup {
  readonly host: string | undefined;
  readonly tls: boolean;
  readonly compareCalls: CompareCalls;
  readonly job: Pick<LauncherEnvironment, "localSize" | "size" | "address">;
}

/** A job of one rank. */
export function openAlone(settings: SessionSettings, name: string): TcpSession {
  return new TcpSession({ ...settings, peers: Peers.alone(), info: infoOf(name, 1, 0) });
}

/** This process's rank in one generation of a job: either all ranks open, or none. */
export function openJoined(
  settings: SessionSettings,
  { host, tls, compareCalls, job: launched }: JobSetup,
  membership: Membership,
  { name, timeoutMs, signal }: JoinRequest,
): Promise<TcpJobSession> {
  const open = async (
    generation: Membership,
    { leftMs, cancelled }: OpenBounds,
  ): Promise<Peers> => {
    const wait = () => ({ timeoutMs: leftMs(), signal: cancelled });
    let place: Place = { host: host ?? launched.address ?? loopbackAddress };
    try {
      place = await (host === undefined ? ownPlace(launched, wait()) : placeAt(host, wait()));
      return await Peers.open(generation, { ...place, tls }, new MessageBlocks(), wait());
    } catch (error) {
      const { code, syscall } = error as NodeJS.ErrnoException;
      if (syscall === undefined) throw error;
      const isFull = isOutOfFiles(code);
      throw new BackendUnavailableError(
        {
          headline: `connect: rank ${generation.rank} cannot listen at ${place.host}: ${faultOf(error as NodeJS.ErrnoException)}`,
          hint: isFull ? outOfFilesHint : "tcp({ host }) names an address of this machine",
        },
        {
          ...{ rank: generation.rank, size: generation.size, cause: error },
          field: isFull ? undefined : "host",
        },
      );
    }
  };
  const backend: SessionOpener<Peers, TcpJobSession> = {
    open,
    undo: async (peers) => peers.destroy(),
    session: (peers, job) =>
      new TcpJobSession({ ...settings, peers, job, info: infoOf(name, peers.size, peers.rank) }),
  };
  return openJob(membership, backend, { timeoutMs, signal }, compareCalls);
}

function infoOf(name: string, size: number, rank: number): CommInfo {
  return { id: 0, name, ranks: Array.from({ length: size }, (_, each) => each), local: [rank] };
}

const loopbackAddress = "127.0.0.1";

/** Where a rank listens. */
type Place = Pick<PeerSettings, "host" | "isEverywhere">;

interface Wait {
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** The place of an address, in brackets or not. From other machines the name of this one leads to another address of it. */
async function placeAt(given: string, wait: Wait): Promise<Place> {
  const host = withoutBrackets(given);
  const ip = await addressOf(host, wait);
  return isOwnName(host, ip) ? { host, isEverywhere: true } : { host };
}

/** The numeric address of a host; that of loopback once the wait is cancelled, which has an error of its own. */
function addressOf(host: string, { timeoutMs, signal }: Wait): Promise<string> {
  return numericAddress(host, timeoutMs, signal).catch((error: unknown) => {
    if (signal.aborted) return loopbackAddress;
    throw error;
  });
}

/** The loopback address where all ranks run here, else the address from which this machine reaches the job's store. */
async function ownPlace({ localSize, size, address }: JobSetup["job"], wait: Wait): Promise<Place> {
  if (localSize === size || address === undefined) return { host: loopbackAddress };
  const ip = await addressOf(address, wait);
  // As for the store.
  if (isOwnName(address, ip)) return { host: address, isEverywhere: true };
  const socket = createSocket(isIPv6(ip) ? "udp6" : "udp4");
  try {
    // Sends nothing: the system chooses the route.
    await new Promise<void>((resolve, reject) => {
      socket.once("error", reject);
      socket.connect(9, ip, resolve);
    });
    return { host: socket.address().address };
  } catch {
    return { host: loopbackAddress };
  } finally {
    socket.close();
  }
}
