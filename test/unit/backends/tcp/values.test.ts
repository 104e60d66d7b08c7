/** The slices of a call: short messages with many credits, and long ones whose bytes under way stay bounded. */
import { input, output, ProgramBuilder } from "twinccl/algorithms";
import { expect, test } from "vitest";
import { slicesOf } from "../../../../src/backends/tcp/values.ts";

const [kib, mib] = [2 ** 10, 2 ** 20];

/** Two ranks exchange chunks in channels that move alike: their chunks are one message. */
function exchange(channels: number) {
  const head = { collective: "allReduce", algorithm: "test", ranks: 2, root: -1 } as const;
  const program = new ProgramBuilder({ ...head, channels, chunksPerBlock: channels });
  for (let at = 0; at < channels; at++) {
    program.everyRank(
      (lane, rank) => lane.send(input(at), 1 - rank).recv(1 - rank, output(at)),
      at,
    );
  }
  return program.build();
}

/** Bytes of a message, and of those of a flow and of all lanes that are under way. */
function bytesOf(channels: number, bytes: number) {
  const { elements, credits, lanesAtOnce } = slicesOf(exchange(channels), "float32", bytes / 4);
  const message = Math.min(elements, Math.ceil(bytes / 4 / channels)) * 4 * channels;
  return { message, waiting: credits * message, open: lanesAtOnce * message };
}

test("a longer call has longer messages, and never more bytes under way than its limits", () => {
  expect(bytesOf(1, 64 * kib)).toEqual({ message: 64 * kib, waiting: 512 * kib, open: 512 * kib });
  expect(bytesOf(1, mib)).toEqual({ message: 128 * kib, waiting: 512 * kib, open: mib });
  expect(bytesOf(1, 2 * mib)).toEqual({ message: 256 * kib, waiting: 512 * kib, open: 2 * mib });
  expect(bytesOf(1, 64 * mib)).toEqual({ message: 512 * kib, waiting: mib, open: 2 * mib });
  for (const channels of [1, 3, 24]) {
    for (let bytes = 4; bytes < 2 ** 30; bytes = 4 * Math.ceil(bytes / 3)) {
      const { message, waiting, open } = bytesOf(channels, bytes);
      expect(message).toBeLessThanOrEqual(512 * kib);
      expect(waiting).toBeLessThanOrEqual(mib);
      expect(open).toBeLessThanOrEqual(2 * mib);
    }
  }
});

test("blocks of lengths that only their ranks know have slices that depend on none", () => {
  expect(slicesOf(exchange(1), "float32", undefined)).toEqual({
    elements: 32 * kib,
    credits: 4,
    lanesAtOnce: 8,
  });
  expect(slicesOf(exchange(1), undefined, 0)).toMatchObject({ elements: 1, credits: 2 });
});
