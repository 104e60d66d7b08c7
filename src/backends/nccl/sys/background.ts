/** C functions that block, on other threads. */
import { hasLargeStacks } from "./koffi.ts";
import { addressOf, type NativeFunction } from "./prototype.ts";
import { type Argument, type Outcome, ownThreads } from "./threads.ts";

/** A device of CUDA as another thread takes it. */
export interface ThreadDevice {
  readonly index: number;
  /** The function of C that makes a device the current one of its thread. */
  readonly setter: bigint;
  /** Makes it the current one of this thread. */
  setHere(): void;
  /** Throws unless the status is success. */
  check(status: number): void;
}

/** A function with its arguments. */
export interface BoundCall {
  readonly call: NativeFunction;
  readonly args: readonly Argument[];
}

/**
 * Runs a C function on another thread, on a device where one is given; resolves with its status.
 *
 * The thread is one of its own, which keeps no process alive, nor does the promise: its users do. Where there are no
 * such threads it is one of Node.js: the process does not end before the call. Those are on device 0 and may have small
 * stacks, where koffi was in use before: with another device, or without a large stack, the function runs here, and blocks.
 */
export async function inBackground<A extends (Argument & unknown)[]>(
  device: ThreadDevice | undefined,
  call: (...args: A) => number,
  ...args: A
): Promise<number> {
  const outcome = await onOwnThread(device, [{ call, args }]);
  if (outcome !== undefined) return outcome.status;
  if ((device !== undefined && device.index !== 0) || !(await hasLargeStacks())) {
    device?.setHere();
    return call(...args);
  }
  const { async: start } = call as unknown as { async: (...args: unknown[]) => void };
  return new Promise((resolve, reject) => {
    start(...args, (error: unknown, status: number) => (error ? reject(error) : resolve(status)));
  });
}

/**
 * Runs C functions one after another on one thread, up to one that gives another status than 0. Where there are no threads
 * of their own they run here, and block; then the last one, which ends what the first began, is run in any case after it: a
 * thread of its own takes with it what is open on it.
 */
export async function allInBackground(
  device: ThreadDevice,
  calls: readonly BoundCall[],
): Promise<Outcome> {
  const outcome = await onOwnThread(device, calls);
  if (outcome !== undefined) return outcome;
  device.setHere();
  for (const [endedAt, { call, args }] of calls.entries()) {
    const status = call(...args) as number;
    if (status === 0) continue;
    const last = calls.at(-1) as BoundCall;
    if (endedAt > 0 && endedAt < calls.length - 1) last.call(...last.args);
    return { status, endedAt };
  }
  return { status: 0, endedAt: calls.length };
}

/** `undefined` where there are no such threads. */
async function onOwnThread(
  device: ThreadDevice | undefined,
  calls: readonly BoundCall[],
): Promise<Outcome | undefined> {
  const begin = await ownThreads();
  if (typeof begin === "string") return undefined;
  const setting = device === undefined ? [] : [{ address: device.setter, args: [device.index] }];
  const outcome = await begin([
    ...setting,
    ...calls.map(({ call, args }) => ({ address: addressOf(call), args })),
  ]);
  if (outcome === undefined) return undefined;
  const { status, endedAt } = outcome;
  if (endedAt < setting.length) device?.check(status);
  return { status, endedAt: endedAt - setting.length };
}
