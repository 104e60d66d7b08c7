/** Where a store listens, and whether that is only this machine. */
import { lookup } from "node:dns/promises";
import { isIPv6 } from "node:net";
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

/** The numeric address of a host. Rejects as `dns.lookup` does. */
export async function numericAddress(host: string): Promise<string> {
  return (await lookup(host)).address;
}

/**
 * Refuses to use a network without a secret, and a secret that can be guessed.
 *
 * @throws InvalidArgumentError that names the secret.
 */
export function requireSecret(host: string, ip: string, secret: string | undefined): void {
  if (secret === undefined || secret === "") {
    if (isLoopback(ip)) return;
    throw new InvalidArgumentError(
      {
        headline: `rendezvous at ${host}: without a secret only a loopback address is allowed, and ${ip} is none`,
        hint: "set TWINCCL_SECRET to the same long random text on every rank, such as the output of: openssl rand -hex 32",
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
