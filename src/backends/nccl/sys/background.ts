/** Runs blocking C functions on other threads. */
import { hasLargeStacks } from "./koffi.ts";
import { addressOf, type NativeFunction } from "./prototype.ts";
import { type Argument, type Outcome, ownThreads } from "./threads.ts";

/** A CUDA device in the form that other threads need. */
export interface ThreadDevice {
  readonly index: number;
  /** C function that sets the device of the calling thread. */
  readonly setter: bigint;
  /** Sets the device of this thread. */
  setHere(): void;
  /** Throws unless the status is success. */
  check(status: number): void;
}

/** A C function with its arguments. */
export interface BoundCall {
  readonly call: NativeFunction;
  readonly args: readonly Argument[];
}

/**
 * Runs a C function on another thread, on a device where one is given; resolves with its status.
 *
 * The call runs on a detached thread, which does not keep the process alive; neither does the promise. Without detached
 * threads, it runs on a thread of Node.js, and the process cannot exit before the call returns. Threads of Node.js use device
 * 0, and have small stacks if koffi was used before. For another device, or without a large stack, the function therefore runs
 * on this thread and blocks.
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
 * Runs C functions one after another on one thread, up to the first status other than 0. Without detached threads, they run on
 * this thread and block. In that case the last function, which ends what the first began, runs even after a failure. On a
 * detached thread, the end of the thread closes it.
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

/** `undefined` without detached threads. */
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
