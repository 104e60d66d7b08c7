/** Checks of arguments, addresses and secrets, before anything is sent. */

import { lookup } from "node:dns/promises";
import { isIP, isIPv6 } from "node:net";
import { InvalidArgumentError } from "../api/errors.ts";
import { longestTimerMs } from "../api/ledger/turns.ts";
import { aboveZero, invalid, type Rule, textOf } from "../api/option-kinds.ts";
import { settlesWithin } from "./async.ts";
import { limits } from "./protocol.ts";
import { defaultWaitMs, type JoinOptions } from "./rendezvous.ts";

/** A whole number in a range. */
export function wholeNumber(
  call: string,
  field: string,
  value: unknown,
  least: number,
  most: number,
): number {
  const isFine = Number.isInteger(value) && (value as number) >= least && (value as number) <= most;
  if (isFine) return value as number;
  throw invalid(call, field, textOf(value), `a whole number in ${least}..${most}`);
}

/** A time to wait. */
export function milliseconds(
  call: string,
  field: string,
  value: unknown,
  fallback: number = defaultWaitMs,
): number {
  if (value === undefined) return fallback;
  const isFine = typeof value === "number" && value >= 0 && value <= longestTimerMs;
  if (isFine) return Math.ceil(value);
  throw invalid(call, field, textOf(value), `milliseconds in 0..${longestTimerMs}`);
}

/** The deadline of calls, as an option of a backend. */
export const timeoutRule: Rule = aboveZero(
  "milliseconds; leave it out for calls without a deadline, or give single calls one",
);

/** Text of limited length in UTF-8. */
export function shortText(call: string, field: string, value: unknown, maxBytes: number): string {
  const bytes = typeof value === "string" ? Buffer.byteLength(value) : 0;
  if (bytes >= 1 && bytes <= maxBytes) return value as string;
  throw invalid(call, field, textOf(value), `a text of 1 to ${maxBytes} bytes`);
}

/** A value for the store. */
export function valueBytes(call: string, value: unknown): Uint8Array {
  if (!(value instanceof Uint8Array)) throw invalid(call, "value", textOf(value), "a Uint8Array");
  if (value.byteLength <= limits.valueBytes) return value;
  const needs = `at most ${limits.valueBytes}`;
  throw invalid(call, "value", `${value.byteLength} bytes`, needs);
}

/** Arguments of a join, complete. */
export interface JoinArguments {
  readonly jobId: string;
  readonly rank: number;
  readonly size: number;
  readonly generation: number;
  /** Time that is left for the join. */
  readonly deadlineMs: number;
  /** The whole time for the join, for messages. */
  readonly limitMs: number;
  readonly signal: AbortSignal | undefined;
}

/** Checks the arguments of a join. */
export function joinArguments(options: JoinOptions): JoinArguments {
  const jobId = shortText("join", "jobId", options.jobId, limits.jobIdBytes);
  const size = wholeNumber("join", "size", options.size, 1, limits.ranks);
  const rank = wholeNumber("join", "rank", options.rank, 0, size - 1);
  const generation = wholeNumber("join", "generation", options.generation ?? 0, 0, 2 ** 31);
  const deadlineMs = milliseconds("join", "deadlineMs", options.deadlineMs);
  const limitMs = deadlineMs;
  return { jobId, rank, size, generation, deadlineMs, limitMs, signal: options.signal };
}

/** Fewer characters are no secret. */
const minSecretLength = 16;

/** Host and port as text. */
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

/** The numeric address of a host. Rejects as `dns.lookup` does, and with `ETIMEDOUT` past a time or once the signal fires. */
export async function numericAddress(
  host: string,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<string> {
  const found = lookup(host);
  if (await settlesWithin(timeoutMs, found, signal)) return (await found).address;
  const facts = { code: "ETIMEDOUT", syscall: "getaddrinfo" };
  throw Object.assign(new Error(`no name server knew ${host} in time`), facts);
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
  if (secret.length >= minSecretLength) return;
  throw new InvalidArgumentError(
    {
      headline: `rendezvous at ${host}: the secret has ${secret.length} characters, needs at least ${minSecretLength}`,
      hint: "make one with: openssl rand -hex 32",
    },
    { field: "secret" },
  );
}
