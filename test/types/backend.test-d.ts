/** The imports of a backend of another package, and the names that programs do not see. */

import type * as api from "twinccl";
import { type Backend, DeviceBuffer, InvalidArgumentError } from "twinccl";
import {
  type Backend as BackendToWrite,
  bufferOver,
  type CallSet,
  type Memory,
  memoryOf,
  type RankCall,
  type Session,
} from "twinccl/backend";
import { describe, expectTypeOf, test } from "vitest";

test("a backend of twinccl/backend is a backend of worlds", () => {
  expectTypeOf<BackendToWrite>().toEqualTypeOf<Backend>();
  expectTypeOf<Awaited<ReturnType<Backend["open"]>>>().toEqualTypeOf<Session>();
});

test("a session reads the memory of calls, and replaces their buffers", () => {
  const execute = ({ calls }: CallSet): Memory[] =>
    calls.flatMap(({ rank, send, recv }: RankCall) => {
      if (send === undefined || recv === undefined) {
        throw new InvalidArgumentError({ headline: "no buffer" }, { rank });
      }
      return [memoryOf(send), memoryOf(recv)];
    });
  expectTypeOf(execute).returns.toEqualTypeOf<Memory[]>();
  const copy = (memory: Memory, session: Session): DeviceBuffer<"int8"> =>
    bufferOver("int8", 4, memory, { rank: 0, session });
  expectTypeOf(copy).returns.toEqualTypeOf<DeviceBuffer<"int8">>();
  expectTypeOf(DeviceBuffer.prototype).toExtend<DeviceBuffer>();
});

describe("programs see none of it", () => {
  test("as names of twinccl", () => {
    // @ts-expect-error: in twinccl/backend
    expectTypeOf<api.Session>().toBeObject();
    // @ts-expect-error: in twinccl/backend
    expectTypeOf<api.CallSet>().toBeObject();
    // @ts-expect-error: in twinccl/backend
    expectTypeOf<api.RankCall>().toBeObject();
    // @ts-expect-error: in twinccl/backend
    expectTypeOf<api.Memory>().toBeObject();
    // @ts-expect-error: nowhere
    expectTypeOf<api.Allocation>().toBeObject();
    // @ts-expect-error: nowhere
    expectTypeOf<api.CallContext>().toBeObject();
  });
});
