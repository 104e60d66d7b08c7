/** Places of lists: their addresses, and the numbers of allocations and address queries. */
import { describe, expect, test } from "vitest";
import {
  ListMemory,
  type ListPlace,
  pieceWords,
} from "../../../../../src/backends/nccl/sys/call-list.ts";

/** Memory of buffers with addresses far from each other; the requests, in order. */
function memory() {
  const requested: ArrayBuffer[] = [];
  const start = (buffer: ArrayBuffer): bigint => BigInt(requested.indexOf(buffer) + 1) << 32n;
  const list = new ListMemory((buffer) => {
    requested.push(buffer);
    return start(buffer);
  });
  /** A place lies where its words do, all of them unwritten. */
  const take = (words: number): ListPlace => {
    const place = list.take(words);
    expect(place.words.length).toBe(words);
    expect(place.words.every((word) => word === 0n)).toBe(true);
    const buffer = place.words.buffer as ArrayBuffer;
    expect(place.address).toBe(start(buffer) + BigInt(place.words.byteOffset));
    expect(place.address % 8n).toBe(0n);
    place.words.fill(1n);
    return place;
  };
  return { requested: requested, take };
}

describe("memory of call lists", () => {
  test("comes many lists to a block, with no shared word", () => {
    const { requested, take } = memory();
    const places = Array.from({ length: 500 }, () => take(10));
    expect(requested.length).toBe(Math.ceil(500 / Math.floor(pieceWords / 10)));
    expect(new Set(places.map(({ address }) => address)).size).toBe(500);
  });

  test("fills a block to its last word", () => {
    const { requested, take } = memory();
    for (let time = 0; time < 4; time++) take(pieceWords / 4);
    expect(requested.length).toBe(1);
    take(1);
    expect(requested.length).toBe(2);
  });

  test("is a block of its own for a long list, beside the shared block", () => {
    const { requested, take } = memory();
    for (let time = 0; time < 20; time++) {
      take(10);
      for (const long of [pieceWords / 4 + 1, pieceWords, 9 * 300 + 1]) take(long);
    }
    expect(requested.length).toBe(1 + 3 * 20);
  });

  test("stays in place also after an unknown address", () => {
    let fails = false;
    const starts = new Map<ArrayBuffer, bigint>();
    const list = new ListMemory((buffer) => {
      if (fails) throw new Error("as planned");
      starts.set(buffer, BigInt(starts.size + 1) << 32n);
      return starts.get(buffer) as bigint;
    });
    const where = ({ words }: ListPlace) =>
      (starts.get(words.buffer as ArrayBuffer) as bigint) + BigInt(words.byteOffset);
    list.take(pieceWords / 4);
    for (let time = 0; time < 3; time++) list.take(pieceWords / 4 - 1);
    fails = true;
    expect(() => list.take(100)).toThrow("as planned");
    fails = false;
    for (const words of [2, 100, 2]) {
      const place = list.take(words);
      expect(place.address).toBe(where(place));
    }
  });
});
