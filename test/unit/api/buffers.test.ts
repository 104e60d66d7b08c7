/** Buffers: their law of ranges, what fill writes for every dtype, and when they may be read. */

import { inspect } from "node:util";
import { type Communicator, connect, createWorld, type DeviceBuffer } from "twinccl";
import type { Backend, Completion, QueueingSession, RankDevice, Work } from "twinccl/backend";
import { sim } from "twinccl/sim";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { everyDType, isFloat, widths } from "../../../src/testing/oracle/elements.ts";
import {
  decode,
  type OracleDType,
  oracleFormats,
  roundTo,
} from "../../../src/testing/oracle/rounding.ts";
import { host } from "../../conformance/host-backend.ts";
import { hostView } from "../../support/host-view.ts";

let comm: Communicator;
beforeAll(async () => {
  comm = await connect({ backend: sim() });
});
afterAll(() => comm.close());

/** Bits of a double rounded to a float dtype, by the oracle. */
function roundedBits(dtype: keyof typeof oracleFormats, value: number): bigint {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  return roundTo(oracleFormats[dtype], decode(oracleFormats.float64, view.getBigUint64(0)));
}

async function bitsOf(buffer: DeviceBuffer): Promise<bigint[]> {
  const array = await buffer.toHost();
  const width = widths[buffer.dtype];
  const bytes = new DataView(array.buffer, array.byteOffset, array.byteLength);
  return Array.from({ length: buffer.length }, (_, i) => {
    if (width === 1) return BigInt(bytes.getUint8(i));
    if (width === 2) return BigInt(bytes.getUint16(2 * i, true));
    if (width === 4) return BigInt(bytes.getUint32(4 * i, true));
    return bytes.getBigUint64(8 * i, true);
  });
}

describe.each(everyDType)("a buffer of %s", (dtype: OracleDType) => {
  test("starts with zeros and reports its size", async () => {
    const buffer = comm.alloc(dtype, 7);
    expect(buffer).toMatchObject({ dtype, length: 7, byteLength: 7 * widths[dtype] });
    expect(buffer.device).toBe("sim:0");
    expect(await bitsOf(buffer)).toEqual(new Array(7).fill(0n));
  });

  test("is filled with the value rounded to the dtype, or the integer wrapped", async () => {
    const buffer = comm.alloc(dtype, 3);
    if (isFloat(dtype)) {
      for (const value of [0, -0, 1, 1 / 3, -2.75, 1e5, 1e-8, 1e300, Infinity, Number.NaN]) {
        const [bits] = await bitsOf(buffer.fill(value));
        const { kind } = decode(oracleFormats[dtype], bits as bigint);
        if (Number.isNaN(value)) expect(kind).toBe("nan");
        else expect(bits, `${value}`).toBe(roundedBits(dtype, value));
      }
      return;
    }
    const width = 8 * widths[dtype];
    for (const value of [0, 1, -1, 127, 128, 255, 2 ** 31, 2 ** 32 + 5, -(2 ** 40), 2n ** 63n]) {
      const [bits] = await bitsOf(buffer.fill(value));
      expect(bits, `${value}`).toBe(BigInt.asUintN(width, BigInt(value)));
    }
  });

  test("refuses to be filled with values outside of its dtype", () => {
    const buffer = comm.alloc(dtype, 3);
    const wrong = isFloat(dtype)
      ? [1n, "1", undefined, null]
      : [0.5, Number.NaN, 2 ** 53, "1", null];
    for (const value of wrong) {
      expect(() => buffer.fill(value as number), String(value)).toThrowError(/fill: found/);
    }
  });

  test("accepts only host arrays of its class and length", async () => {
    const buffer = comm.alloc(dtype, 4);
    const host = hostView(dtype, new ArrayBuffer(4 * widths[dtype]), 0, 4);
    new Uint8Array(host.buffer).forEach((_, i, bytes) => {
      bytes[i] = 37 * i + 11;
    });
    expect(buffer.copyFrom(host as never)).toBe(buffer);
    expect(await buffer.toHost()).toEqual(host);
    const target = hostView(dtype, new ArrayBuffer(4 * widths[dtype]), 0, 4);
    await buffer.copyTo(target as never);
    expect(target).toEqual(host);
    const wrong = [new Int16Array(4), new Float64Array(3), new ArrayBuffer(4), [1, 2, 3, 4], null];
    for (const other of wrong) {
      expect(() => buffer.copyFrom(other as never)).toThrowError(/copyFrom: found/);
      await expect(buffer.copyTo(other as never)).rejects.toMatchObject({ code: "ERR_COMM_ARG" });
    }
    const short = hostView(dtype, new ArrayBuffer(3 * widths[dtype]), 0, 3);
    expect(() => buffer.copyFrom(short as never)).toThrowError(/found 3 elements, needs exactly 4/);
  });
});

describe("subarray", () => {
  test("shares memory, and counts positions in elements of its parent buffer", async () => {
    const owner = comm.alloc("int32", 10).copyFrom(Int32Array.from({ length: 10 }, (_, i) => i));
    const middle = owner.subarray(2, 8);
    const inner = middle.subarray(1, 3);
    expect([middle.length, inner.length]).toEqual([6, 2]);
    expect([middle.ptr - owner.ptr, inner.ptr - owner.ptr]).toEqual([8n, 12n]);
    expect(Array.from(await inner.toHost())).toEqual([3, 4]);
    inner.fill(-1);
    expect(Array.from(await owner.toHost())).toEqual([0, 1, 2, -1, -1, 5, 6, 7, 8, 9]);
    expect(owner.subarray(4).length).toBe(6);
    expect(owner.subarray().length).toBe(10);
    expect(owner.subarray(10).length).toBe(0);
  });

  test("refuses positions outside of the buffer: no clamping, no counting from the end", () => {
    const owner = comm.alloc("float32", 4);
    const wrong: [unknown, unknown, string][] = [
      [-1, 2, "begin"],
      [5, 5, "begin"],
      [0.5, 2, "begin"],
      [Number.NaN, 2, "begin"],
      [0, 5, "end"],
      [3, 2, "end"],
      [0, 1.5, "end"],
      [0, -1, "end"],
      [0, "2", "end"],
    ];
    for (const [begin, end, field] of wrong) {
      const cut = (): unknown => owner.subarray(begin as number, end as number);
      expect(cut, `${begin}..${end}`).toThrowError(expect.objectContaining({ field }));
    }
  });

  test("ends with its allocation, disposed through either view", async () => {
    const owner = comm.alloc("int8", 4);
    const part = owner.subarray(1, 3);
    part.dispose();
    part.dispose();
    owner[Symbol.dispose]();
    expect([owner.disposed, part.disposed]).toEqual([true, true]);
    for (const use of [
      () => owner.fill(1),
      () => owner.copyFrom(new Int8Array(4)),
      () => owner.subarray(0, 1),
    ]) {
      expect(use).toThrowError(expect.objectContaining({ code: "ERR_COMM_CLOSED" }));
    }
    await expect(owner.toHost()).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
  });
});

describe("alloc", () => {
  test("refuses values that are not a dtype or not a length", () => {
    for (const dtype of ["float128", "toString", "", null, undefined, 7]) {
      expect(() => comm.alloc(dtype as never, 1)).toThrowError(
        expect.objectContaining({ code: "ERR_COMM_ARG", field: "dtype" }),
      );
    }
    for (const length of [-1, 0.5, Number.NaN, Infinity, 2 ** 53, "4", undefined, null, 4n]) {
      expect(() => comm.alloc("int8", length as never), String(length)).toThrowError(
        expect.objectContaining({ code: "ERR_COMM_ARG", field: "length" }),
      );
    }
    expect(() => comm.alloc("float64", 2 ** 45)).toThrowError(
      expect.objectContaining({ code: "ERR_COMM_ARG", field: "length" }),
    );
  });

  test("gives addresses that are aligned and never overlap, on every rank", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const ranges = await world.run((rank) =>
      [0, 1, 255, 256, 257, 5000].map((length) => {
        const buffer = rank.alloc("uint8", length);
        expect(buffer.ptr % 256n).toBe(0n);
        return { from: buffer.ptr, to: buffer.ptr + BigInt(Math.max(1, length)) };
      }),
    );
    const sorted = ranges.flat().sort((a, b) => Number(a.from - b.from));
    sorted.forEach(({ from }, i) => {
      if (i > 0) expect(from).toBeGreaterThanOrEqual((sorted[i - 1] as { to: bigint }).to);
    });
    await world.close();
  });
});

test("console.log names a buffer by its type and device, without its memory", () => {
  const buffer = comm.alloc("float32", 3);
  expect(inspect({ buffer })).toBe("{ buffer: DeviceBuffer float32[3] on sim:0 }");
  buffer.dispose();
  expect(inspect(buffer)).toBe("DeviceBuffer float32[3] on sim:0, disposed");
});

describe("reading", () => {
  test("waits for the operation that uses the memory", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const results = await world.run(async (rank) => {
      const data = rank.alloc("int32", 2).fill(rank.rank + 1);
      if (rank.rank === 1) await new Promise((resolve) => setTimeout(resolve, 4));
      const op = rank.allReduce({ send: data, op: "sum" });
      const read = Array.from(await data.subarray(1).toHost());
      return [read, op.status];
    });
    expect(results).toEqual([
      [[3], "done"],
      [[3], "done"],
    ]);
    await world.close();
  });

  test("fails with the error of the operation that used the memory, until a later one succeeds", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const results = await world.run(async (rank) => {
      const data = rank.alloc("int32", 2).fill(1);
      const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 3));
      // Rank 0 comes first to the call that fails and last to the one that succeeds.
      if (rank.rank === 1) await pause();
      const op = rank.allReduce({ send: data, op: rank.rank === 0 ? "sum" : "max" });
      const failed = await op.catch((error) => (error as { code: string }).code);
      if (rank.rank === 0) await pause();
      await rank.allReduce({ send: data, op: "sum" });
      return [failed, Array.from(await data.toHost())];
    });
    expect(results).toEqual([
      ["ERR_COMM_MISMATCH", [2, 2]],
      ["ERR_COMM_MISMATCH", [2, 2]],
    ]);
    await world.close();
  });
});

describe("adopting memory", () => {
  test("is refused on backends without device memory, with an alternative in the hint", () => {
    let error: unknown;
    try {
      comm.adopt(0x1000n, "float32", 4);
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toMatchObject({ code: "ERR_COMM_UNSUPPORTED", rank: 0, field: "ptr" });
    expect(String(error)).toMatch(/adopt: the ranks of sim have no device memory/);
    expect(String(error)).toMatch(/a TypedArray: pass it in calls as it is/);
  });

  test("checks its arguments first", () => {
    expect(() => comm.adopt(7n, "float32", 4)).toThrow(/needs a multiple of 4/);
    expect(() => comm.adopt(8n, "float32", 1.5)).toThrow(/found length 1.5/);
  });
});

/** A backend that completes every call while it is submitted. */
function completingAtOnce(): Backend {
  const inner = host();
  return {
    ...inner,
    open: async (request) => {
      const session = await inner.open(request);
      const submit = (work: Work, completion: Completion): void => {
        void session.execute(work);
        completion.settled();
      };
      return { ...session, submit } as QueueingSession;
    },
  };
}

describe("memory that is disposed while a call with it is under way", () => {
  /** Runs calls in a later turn, and notes the order in which they end and memory is freed. */
  function late(notes: string[], queues: boolean): Backend {
    const inner = host();
    return {
      ...inner,
      open: async (request) => {
        const session = await inner.open(request);
        const execute = async (work: Work): Promise<void> => {
          await new Promise((resolve) => setImmediate(resolve));
          await session.execute(work);
          notes.push("call");
        };
        const submit = (work: Work, completion: Completion): void => {
          void execute(work).then(() => completion.settled());
        };
        const device = (rank: number): RankDevice => {
          const own = session.device(rank);
          const allocate: RankDevice["allocate"] = (...args) => {
            const memory = own.allocate(...args);
            const giveBack = memory.free.bind(memory);
            const free = (): void => {
              notes.push("free");
              // Queued work keeps the bytes.
              if (!queues) giveBack();
            };
            return Object.assign(memory, { free });
          };
          return Object.assign(Object.create(own), { allocate });
        };
        return { ...session, device, ...(queues ? { submit } : { execute }) } as QueueingSession;
      },
    };
  }

  test.each([
    { queues: false, order: ["call", "free"] },
    { queues: true, order: ["free", "call"] },
  ])("is freed in the order $order", async ({ queues, order }) => {
    const notes: string[] = [];
    const world = await createWorld({ backend: late(notes, queues), size: 2 });
    try {
      const sums = await world.run(async (comm) => {
        const send = comm.alloc("int32", 2).fill(1);
        const recv = comm.alloc("int32", 2);
        const op = comm.allReduce({ send, recv, op: "sum" });
        await op.enqueued;
        if (comm.rank === 0) send.dispose();
        await op;
        return [...(await recv.toHost())];
      });
      expect(sums).toEqual([0, 1].map(() => [2, 2]));
      expect(notes).toEqual(order);
    } finally {
      await world.close();
    }
  });
});

test.each(
  Object.entries({ "in the simulation": sim, "completed while submitted": completingAtOnce }),
)("contents of a call behind a failed one are read, %s", async (_, backend) => {
  const world = await createWorld({ backend: backend(), size: 3 });
  try {
    const held = await world.run(async (comm) => {
      const send = comm.alloc("float32", 2).fill(1);
      const part = comm.rank === 2 ? send.subarray(0, 1) : send;
      await expect(comm.allReduce({ send: part, op: "sum" })).rejects.toThrow("count");
      for (let call = 0; call < 3; call++) await comm.allReduce({ send, op: "sum" });
      return [...(await send.toHost())];
    });
    expect(held).toEqual([0, 1, 2].map(() => [27, 27]));
  } finally {
    await world.close();
  }
});
