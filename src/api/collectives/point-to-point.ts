/**
 * Point to point: send, receive, and both at once.
 *
 * Sends from one rank to another meet that rank's receives from it in the order posted. A send and its receive are
 * equal in dtype and length. Each waits for the other (rendezvous), so what would hang on NCCL is found here; calls of
 * one `sendRecv` or `group` meet freely.
 */
import type { Data, RecvArgs, SendArgs, SendRecvArgs } from "../calls.ts";
import type { PreparedHalf, PreparedTransfer, SignatureField } from "../ledger/posting.ts";
import type { Validator } from "./validate.ts";

/** Checks a send. */
export function prepareSend<S extends Data>(
  check: Validator,
  args: SendArgs<S>,
  rank: number,
): PreparedTransfer<void> {
  const peer = otherRank(check, args.peer, rank);
  return ofOne(sendHalf(check, args.send, peer), undefined);
}

/** Checks a receive. */
export function prepareRecv<R extends Data>(
  check: Validator,
  args: RecvArgs<R>,
  rank: number,
): PreparedTransfer<R> {
  const peer = otherRank(check, args.peer, rank);
  return ofOne(recvHalf(check, args.recv, peer, args.recv), args.recv);
}

/** Checks a send and a receive that happen together; either may be with this rank itself. */
export function prepareSendRecv<S extends Data, R extends Data>(
  check: Validator,
  args: SendRecvArgs<S, R>,
): PreparedTransfer<R> {
  const send = sendHalf(check, args.send, check.rank("to", args.to));
  const recv = recvHalf(check, args.recv, check.rank("from", args.from));
  const { send: source } = send.call;
  const { recv: target } = recv.call;
  if (source !== undefined && target !== undefined) check.apart(source, target);
  const call = { ...send.call, recv: target };
  return { call, signature: noFields, result: args.recv, transfers: [send, recv] };
}

/** Messages are compared by their buffers. */
const noFields: readonly SignatureField[] = [];

function ofOne<T>(half: PreparedHalf, result: T): PreparedTransfer<T> {
  return { call: half.call, signature: noFields, result, transfers: [half] };
}

function sendHalf(check: Validator, data: Data, peer: number): PreparedHalf {
  const send = check.buffer("send", data);
  const call = { dtype: send.dtype, count: send.length, send };
  return { direction: "send", peer, call, signature: noFields, result: undefined };
}

function recvHalf(check: Validator, data: Data, peer: number, result?: Data): PreparedHalf {
  const recv = check.buffer("recv", data);
  const call = { dtype: recv.dtype, count: recv.length, recv };
  return { direction: "recv", peer, call, signature: noFields, result };
}

/** The peer of a message, which is not this rank. */
function otherRank(check: Validator, given: number, rank: number): number {
  const peer = check.rank("peer", given);
  if (peer !== rank) return peer;
  const hint = "sendRecv can talk to itself";
  throw check.fault("peer", `rank ${peer} is this rank`, "another one", hint);
}
