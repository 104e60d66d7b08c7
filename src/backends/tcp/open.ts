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
import { Blocks } from "./blocks.ts";
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
    const own =
      host === undefined ? await ownPlace(launched, wait()) : { host: withoutBrackets(host) };
    try {
      return await Peers.open(generation, { ...own, tls }, new Blocks(), wait());
    } catch (error) {
      const { code, syscall } = error as NodeJS.ErrnoException;
      if (syscall === undefined) throw error;
      const isFull = isOutOfFiles(code);
      throw new BackendUnavailableError(
        {
          headline: `connect: rank ${generation.rank} cannot listen at ${own.host}: ${faultOf(error as NodeJS.ErrnoException)}`,
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

/** The loopback address where all ranks run here, else the address from which this machine reaches the job's store. */
async function ownPlace(
  { localSize, size, address }: JobSetup["job"],
  { timeoutMs, signal }: { readonly timeoutMs: number; readonly signal: AbortSignal },
): Promise<Pick<PeerSettings, "host" | "isEverywhere">> {
  if (localSize === size || address === undefined) return { host: loopbackAddress };
  const ip = await numericAddress(address, timeoutMs, signal).catch(() => loopbackAddress);
  // From other machines that name leads to another address of this one, as for the store.
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
