/** Where a store listens, and whether that is only this machine. */
import { lookup } from "node:dns/promises";
import { isIP, isIPv6 } from "node:net";
import { InvalidArgumentError } from "../../../api/index.ts";

/** Fewer characters are no secret. */
const leastSecretLength = 16;

/** A host as people write it, behind its port. */
export function addressText(host: string, port: number): string {
  return isIPv6(host) ? `[${host}]:${port}` : `${host}:${port}`;
}

/** True for an address that only this machine reaches. */
export function isLoopback(ip: string): boolean {
  return ip === "::1" || /^(::ffff:)?127\.\d+\.\d+\.\d+$/i.test(ip);
}

/** Names that the files of the usual systems give a loopback address, on every machine. */
const loopbackNames =
  /^(.*\.)?localhost$|^localhost[46]$|^localhost[46]?\.localdomain[46]?$|^ip6-(localhost|loopback)$/i;

/**
 * True for a host name that leads to this machine itself here, and from others to one of its other addresses. Debian and Ubuntu
 * give a machine's own name the address 127.0.1.1 there.
 */
export function isOwnName(host: string, ip: string): boolean {
  // 127.1 is an address too, which the system completes.
  const isAddress = isIP(host) !== 0 || /^[\d.]+$/.test(host);
  return isLoopback(ip) && !isAddress && !loopbackNames.test(host);
}

/** The numeric address of a host. Rejects as `dns.lookup` does. */
export async function numericAddress(host: string): Promise<string> {
  return (await lookup(host)).address;
}

/**
 * Refuses to use a network without a secret, and a secret that can be guessed. This machine's own name stands for the network.
 *
 * @throws InvalidArgumentError that names the secret.
 */
export function requireSecret(host: string, ip: string, secret: string | undefined): void {
  if (secret === undefined || secret === "") {
    const isNetwork = !isLoopback(ip);
    if (!isNetwork && !isOwnName(host, ip)) return;
    const why = isNetwork
      ? `${ip} is none`
      : `${host} is this machine's name among others, though it has ${ip} here`;
    const orAlone = isNetwork
      ? ""
      : "; or, with all ranks on this machine, TWINCCL_ADDRESS=127.0.0.1";
    throw new InvalidArgumentError(
      {
        headline: `rendezvous at ${host}: without a secret only a loopback address is allowed, and ${why}`,
        hint: `set TWINCCL_SECRET to the same long random text on every rank, such as the output of: openssl rand -hex 32${orAlone}`,
      },
      { field: "secret" },
    );
  }
  if (secret.length >= leastSecretLength) return;
  throw new InvalidArgumentError(
    {
      headline: `rendezvous at ${host}: the secret has ${secret.length} characters, needs at least ${leastSecretLength}`,
      hint: "make one with: openssl rand -hex 32",
    },
    { field: "secret" },
  );
}
