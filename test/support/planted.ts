/**
 * Wrong programs, planted on purpose, and what must come of them on every rank.
 *
 * A planted program runs in a world of its own. Each rank's error is compared with what is expected of it, buffers
 * under guard must keep their bytes, nothing may hang, and the world must run a healthy program afterwards.
 */
import {
  CommError,
  type Communicator,
  createWorld,
  type DeviceBuffer,
  type DType,
  type HostArray,
  type World,
  WorldError,
} from "twinccl";
import { cpu, HostMemory, sim } from "twinccl/sim";
import { expect } from "vitest";
import { memoryOf } from "../../src/api/buffer.ts";
import { healthCheck, healthyAmong } from "../../src/testing/conformance/parts.ts";

/** The required outcome of one rank: an error's facts, `fine`, or an error of the program's own with that message. */
export type Expected =
  | "fine"
  | { readonly message: string }
  | {
      readonly name: string;
      readonly code: string;
      readonly ranks?: readonly number[];
      readonly field?: string;
      readonly call?: number;
      readonly collective?: string;
    };

/** A wrong program. */
export interface Planted {
  readonly wrong: string;
  readonly size: number;
  readonly program: (comm: Communicator, guard: Guard) => unknown;
  readonly expected: (rank: number) => Expected;
}

/** Bytes under guard, and what they were. */
interface Guarded {
  readonly bytes: Uint8Array;
  readonly before: Uint8Array;
}

/** Puts buffers under guard: their bytes must be the same when everything is over. */
export class Guard {
  readonly #kept: Guarded[] = [];

  /** A guarded buffer of a rank with some contents. Its bytes are watched even when it was disposed with its run. */
  buffer<D extends DType>(comm: Communicator, dtype: D, length: number): DeviceBuffer<D> {
    const buffer = comm.alloc(dtype, length);
    buffer.fill(7);
    const memory = memoryOf(buffer);
    if (!(memory instanceof HostMemory)) throw new Error("only the simulation's memory is watched");
    this.#keep(new Uint8Array(memory.buffer, buffer.byteOffset, buffer.byteLength));
    return buffer;
  }

  /** A guarded host array. */
  array<A extends HostArray>(array: A): A {
    this.#keep(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
    return array;
  }

  /** Throws when any guarded byte is not what it was. */
  assertUnwritten(): void {
    for (const { bytes, before } of this.#kept) {
      expect(Buffer.compare(bytes, before), "bytes were written").toBe(0);
    }
  }

  #keep(bytes: Uint8Array): void {
    this.#kept.push({ bytes, before: bytes.slice() });
  }
}

/** The longest time of a planted program; a deadlock is found at once, so this is never reached. */
const patienceMs = 10_000;

/** Runs a wrong program and checks everything that was expected of it. */
export async function expectPlanted({ size, program, expected }: Planted): Promise<void> {
  const world = await createWorld({
    backend: sim({ executor: cpu() }),
    size,
    onStall: () => undefined,
  });
  const caught = new Array<unknown>(size).fill(undefined);
  const guards = Array.from({ length: size }, () => new Guard());
  const running = world.run(async (comm) => {
    try {
      await program(comm, guards[comm.rank] as Guard);
    } catch (error) {
      caught[comm.rank] = error;
      throw error;
    }
  });
  const outcome = await within(
    patienceMs,
    running.then(
      () => undefined,
      (error: unknown) => error,
    ),
  );
  for (let rank = 0; rank < size; rank++) expectError(rank, caught[rank], expected(rank));
  expectWorldError(outcome, caught);
  for (const guard of guards) guard.assertUnwritten();
  await expectHealthy(world);
  await world.close();
}

/** One rank's error is the expected one. */
function expectError(rank: number, error: unknown, needed: Expected): void {
  if (needed === "fine") {
    expect(error, `rank ${rank}`).toBeUndefined();
    return;
  }
  expect(error, `rank ${rank}`).toBeInstanceOf(Error);
  if ("message" in needed) {
    expect((error as Error).message, `rank ${rank}`).toBe(needed.message);
    return;
  }
  expect(error, `rank ${rank}: ${String(error)}`).toBeInstanceOf(CommError);
  const found = error as CommError & Record<string, unknown>;
  const facts: Record<string, unknown> = {};
  for (const key of Object.keys(needed)) facts[key] = found[key];
  expect({ rank, ...facts }, `rank ${rank}: ${found.message}`).toEqual({ rank, ...needed });
  expect(found.rank, "the rank that sees the error").toBe(rank);
  expect(found.message.length).toBeGreaterThan(0);
  JSON.stringify(found);
}

function expectWorldError(outcome: unknown, caught: readonly unknown[]): void {
  const failed = caught.flatMap((error, rank) => (error === undefined ? [] : [rank]));
  if (failed.length === 0) {
    expect(outcome).toBeUndefined();
    return;
  }
  expect(outcome).toBeInstanceOf(WorldError);
  const { failures, ranks, code, cause } = outcome as WorldError;
  expect(code).toBe("ERR_COMM_WORLD");
  expect(failures.map(({ rank }) => rank).sort((a, b) => a - b)).toEqual(failed);
  expect(ranks).toEqual(failures.map(({ rank }) => rank));
  for (const { rank, error } of failures) expect(error).toBe(caught[rank]);
  expect(cause).toBe(failures[0]?.error);
}

/** The world still works. */
export async function expectHealthy(world: World): Promise<void> {
  const held = await within(patienceMs, world.run(healthCheck));
  for (const each of held) expect(each).toEqual(healthyAmong(world.size));
}

/**
 * The promise, or an error when it takes too long. Its timer does not keep Node alive, so that it is not taken for
 * something that could still wake a rank.
 */
export async function within<T>(milliseconds: number, promise: PromiseLike<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`hung for ${milliseconds} ms`)), milliseconds);
    timer.unref();
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
