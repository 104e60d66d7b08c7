/**
 * Runs blocking C functions on other threads: on detached threads of the native helper, which do not keep the process alive.
 *
 * Node.js has four threads for blocking calls, and cannot exit during such a call, not even by `process.exit`. NCCL's start
 * waits forever for a lost rank. A detached thread blocks neither the exit nor other calls.
 */
import {
  type BoundCall,
  type Helper,
  headWords,
  helper,
  listWords,
  wordBytes,
  writeCalls,
} from "./helper.ts";
import { hasLargeStacks } from "./koffi.ts";
import type { UniqueIdValue } from "./nccl.ts";
import { addressOf, type NativeFunction } from "./prototype.ts";

/** An argument of a call. On a detached thread, memory is a copy, which is copied back after the calls. */
type Argument = bigint | number | ArrayBufferView | UniqueIdValue;

/** Result of successive calls, up to the first status other than 0. */
interface Outcome {
  /** Status of the last call. */
  readonly status: number;
  /** Number of calls before the failed one; the number of all calls if none failed. */
  readonly endedAt: number;
}

/** A CUDA device in the form that other threads need. */
export interface ThreadDevice {
  readonly index: number;
  /** C function that sets the device of the calling thread. */
  readonly setter: NativeFunction;
  /** Sets the device of this thread. */
  setHere(): void;
  /** Throws unless the status is success. */
  check(status: number): void;
}

/**
 * Runs a C function on another thread, on a device where one is given; resolves with its status.
 *
 * The call runs on a detached thread, which does not keep the process alive; neither does the promise. Without detached
 * threads, it runs on a thread of Node.js, and the process cannot exit before the call returns. Threads of Node.js use device
 * 0, and have small stacks if koffi was used before. For another device, or without a large stack, the function therefore runs
 * on this thread and blocks.
 */
export async function inBackground(
  device: ThreadDevice | undefined,
  bound: BoundCall<Argument>,
): Promise<number> {
  const outcome = await onOwnThread(device, [bound]);
  if (outcome !== undefined) return outcome.status;
  const { call, args } = bound;
  if ((device !== undefined && device.index !== 0) || !(await hasLargeStacks())) {
    device?.setHere();
    return call(...args) as number;
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
  calls: readonly BoundCall<Argument>[],
): Promise<Outcome> {
  const outcome = await onOwnThread(device, calls);
  if (outcome !== undefined) return outcome;
  device.setHere();
  for (const [endedAt, { call, args }] of calls.entries()) {
    const status = call(...args) as number;
    if (status === 0) continue;
    const last = calls.at(-1) as BoundCall<Argument>;
    if (endedAt > 0 && endedAt < calls.length - 1) last.call(...last.args);
    return { status, endedAt };
  }
  return { status: 0, endedAt: calls.length };
}

/** `undefined` without detached threads. */
async function onOwnThread(
  device: ThreadDevice | undefined,
  calls: readonly BoundCall<Argument>[],
): Promise<Outcome | undefined> {
  const found = await helper();
  if (typeof found === "string") return undefined;
  const setting = device === undefined ? [] : [{ call: device.setter, args: [device.index] }];
  const outcome = await onThread(found, [...setting, ...calls]);
  if (outcome === undefined) return undefined;
  const { status, endedAt } = outcome;
  if (endedAt < setting.length) device?.check(status);
  return { status, endedAt: endedAt - setting.length };
}

/**
 * Runs calls on a detached thread; `undefined` if none can be started. The promise does not keep the process alive either; a
 * wait for it needs `keepAlive`. The list and the copies of memory are the helper's: a thread may outlive JavaScript.
 *
 * @internal
 */
export function onThread(
  { allocate, free, start, commInit }: Helper,
  calls: readonly BoundCall<Argument>[],
): Promise<Outcome> | undefined {
  const callWords = listWords(calls.length);
  const lentBytes = calls.flatMap(({ args }) =>
    args.map((argument) => inWords(memoryOf(argument)?.length ?? 0)),
  );
  const memory = allocate(lentBytes.reduce((sum, each) => sum + each, callWords * wordBytes));
  if (memory === undefined) return undefined;
  const { address, buffer } = memory;
  const copies: { readonly given: Uint8Array; readonly copy: Uint8Array }[] = [];
  let end = callWords * wordBytes;
  /** Memory as the address of its copy. */
  const word = (argument: Argument): bigint | number => {
    const given = memoryOf(argument);
    if (given === undefined) return argument as bigint | number;
    const copy = new Uint8Array(buffer, end, given.length);
    copy.set(given);
    copies.push({ given, copy });
    end += inWords(given.length);
    return address + BigInt(copy.byteOffset);
  };
  let isRunning = false;
  try {
    const listed = calls.map(({ call, args }): BoundCall => {
      const plain = args.map(word);
      return args.some(isValue)
        ? { call: commInit, args: [addressOf(call), ...plain] }
        : { call, args: plain };
    });
    writeCalls(new BigUint64Array(buffer, 0, callWords), listed);
    isRunning = start(address);
  } finally {
    if (!isRunning) free(address);
  }
  if (!isRunning) return undefined;
  return untilDone(new Int32Array(buffer, 0, 2 * headWords)).then((fields) => {
    for (const { given, copy } of copies) given.set(copy);
    const [status = 0, , failed = 0] = fields;
    free(address);
    return { status, endedAt: status === 0 ? calls.length : failed };
  });
}

function isValue(argument: Argument): argument is UniqueIdValue {
  return typeof argument === "object" && "internal" in argument;
}

/** The memory of an argument as bytes; `undefined` for a word. */
function memoryOf(argument: Argument): Uint8Array | undefined {
  if (typeof argument !== "object") return undefined;
  const { buffer, byteOffset, byteLength } = isValue(argument) ? argument.internal : argument;
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/** Rounds bytes up to whole words. */
function inWords(bytes: number): number {
  return Math.ceil(bytes / wordBytes) * wordBytes;
}

const [firstPollMs, longestPollMs] = [1, 100];
/** Ratio of the interval between checks to the time so far; it limits the relative delay of an outcome. */
const pollFraction = 1 / 16;

/** Resolves with the head of a list when its thread is done, if ever. Its timers do not keep the process alive. */
function untilDone(head: Int32Array): Promise<Int32Array> {
  const began = performance.now();
  return new Promise((resolve) => {
    const look = (): void => {
      // An atomic load: what the thread wrote before it is seen after it.
      if (Atomics.load(head, 1) !== 0) {
        resolve(head);
        return;
      }
      const pauseMs = (performance.now() - began) * pollFraction;
      setTimeout(look, Math.min(longestPollMs, Math.max(firstPollMs, pauseMs))).unref();
    };
    look();
  });
}
