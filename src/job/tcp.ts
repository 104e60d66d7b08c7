/** The rendezvous over TCP. */
import {
  addressText,
  joinArguments,
  numericAddress,
  requireSecret,
  shortText,
  wholeNumber,
} from "./checks.ts";
import { connectSession, joinWithRetry } from "./connect.ts";
import type { Rendezvous } from "./rendezvous.ts";
import { hostLingersMs, StoreServer } from "./server.ts";

/** Where the store is. */
export interface TcpOptions {
  /** Host name or address, the same on every rank (127.0.0.1). Anything but loopback needs a secret. */
  readonly address?: string | undefined;
  readonly port: number;
  /** At least 16 characters that cannot be guessed, the same on every rank. */
  readonly secret?: string | undefined;
  /** The host of the store: the process of rank 0 (the default), or another one, such as the launcher. */
  readonly host?: "rank 0" | "other" | undefined;
}

/**
 * A rendezvous at a TCP port.
 *
 * Rank and store prove to each other that they know the secret before any other message, and every later frame is
 * authenticated; nothing is encrypted. Without a secret, which only a loopback address allows, every process on this machine
 * can join.
 *
 * A store hosted by rank 0 ends with the process of rank 0: then no rank can rejoin.
 *
 * @throws InvalidArgumentError for a port that is none. `join` too: for a secret that is missing or short.
 */
export function tcpRendezvous(options: TcpOptions): Rendezvous {
  const host = shortText("tcpRendezvous", "address", options.address ?? "127.0.0.1", 253);
  const port = wholeNumber("tcpRendezvous", "port", options.port, 1, 65_535);
  const { secret } = options;
  const address = addressText(host, port);
  return {
    address,
    async join(joinOptions) {
      const args = joinArguments(joinOptions);
      const { jobId, rank, size, signal } = args;
      const server =
        rank === 0 && options.host !== "other"
          ? await StoreServer.listen({ jobId, size, hosted: true, address: host, port, secret })
          : undefined;
      try {
        await refuseOpenNetwork(host, secret);
        const context = { address, jobId, rank, size };
        const target = { host, port, secret: secret ?? "" };
        const left = async (): Promise<void> => {
          await server?.whenEmpty(hostLingersMs);
          await server?.close();
        };
        return await joinWithRetry({ address, jobId, left }, args, (leftMs) =>
          connectSession(target, context, leftMs, signal),
        );
      } catch (error) {
        await server?.close();
        throw error;
      }
    },
  };
}

/** A rank does not talk to a network without a secret either. A name that cannot be found yet is tried again later. */
async function refuseOpenNetwork(host: string, secret: string | undefined): Promise<void> {
  const ip = await numericAddress(host).catch(() => undefined);
  if (ip !== undefined) requireSecret(host, ip, secret);
}
