/** C functions that block, on other threads. */
import { hasLargeStacks } from "./koffi.ts";
import { ownThreads } from "./own-threads.ts";
import { addressOf } from "./prototype.ts";
import type { Argument } from "./thread-record.ts";

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

/**
 * Runs a C function on another thread, on a device where one is given; resolves with its status.
 *
 * The thread is one of its own, which keeps no process, nor does the promise: who waits has a deadline. Where there are no
 * such threads it is one of Node.js: the process does not end before the call. Those are on device 0 and may have small
 * stacks, where koffi was in use before: with another device, or without a large stack, the function runs here, and blocks.
 */
export async function inBackground<A extends (Argument & unknown)[]>(
  device: ThreadDevice | undefined,
  call: (...args: A) => number,
  ...args: A
): Promise<number> {
  const begin = await ownThreads();
  const setting = device === undefined ? [] : [{ address: device.setter, args: [device.index] }];
  const calls = [...setting, { address: addressOf(call), args }];
  const outcome = typeof begin === "string" ? undefined : begin(calls);
  if (outcome !== undefined) {
    const { status, endedAt } = await outcome;
    if (endedAt < setting.length) device?.check(status);
    return status;
  }
  if ((device !== undefined && device.index !== 0) || !(await hasLargeStacks())) {
    device?.setHere();
    return call(...args);
  }
  const { async: start } = call as unknown as { async: (...args: unknown[]) => void };
  return new Promise((resolve, reject) => {
    start(...args, (error: unknown, status: number) => (error ? reject(error) : resolve(status)));
  });
}
