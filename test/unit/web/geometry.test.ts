/** The stage: trees A and B over hosts, and rings, laid out so that ranks are legible in wide and narrow rooms. */
import { describe, expect, test } from "vitest";
import { doubleTree } from "../../../src/algorithms/nccl/connect.ts";
import type { Flight } from "../../../web/data/film.ts";
import { type Drawing, drawingOf } from "../../../web/stage/geometry.ts";

const flight = (from: number, to: number, channel: number): Flight =>
  ({ message: { from, to, channel }, order: [from], final: false }) as unknown as Flight;

/** Messages up and down trees A and B, each on every second channel. */
function treeFlights(hosts: number, channels = 2): Flight[] {
  return Array.from({ length: channels }, (_, channel) => {
    const { children } = doubleTree(hosts)[channel % 2] as ReturnType<typeof doubleTree>[0];
    return children.flatMap((below, rank) =>
      below.flatMap((child) => [flight(child, rank, channel), flight(rank, child, channel)]),
    );
  }).flat();
}

const drawn = (hosts: number, pixels: number, channels = 2): Drawing =>
  drawingOf(
    treeFlights(hosts, channels),
    hosts,
    (of) => doubleTree(hosts)[of.has(0) ? 0 : 1].root,
    pixels,
  );

/** Widths of the stage on a page of 1,280 and of 390 pixels. */
const rooms = [556, 356];

describe.each(rooms)("in a room of %i pixels", (pixels) => {
  test.each(Array.from({ length: 30 }, (_, i) => i + 3))(
    "trees of %i hosts are apart, whole and legible",
    (hosts) => {
      const { frame, panels } = drawn(hosts, pixels);
      expect(panels.map(({ kind, title }) => [kind, title])).toEqual(
        hosts > 3
          ? [
              ["tree", "tree A · channel 0"],
              ["tree", "tree B · channel 1"],
            ]
          : expect.anything(),
      );
      for (const { spots, radius, ways } of panels) {
        expect(ways.size).toBe(panels.length === 2 ? 2 * (hosts - 1) : ways.size);
        expect(spots.map(({ rank }) => rank).sort((a, b) => a - b)).toEqual(
          Array.from({ length: hosts }, (_, rank) => rank),
        );
        for (const [i, a] of spots.entries()) {
          expect(a.x - radius).toBeGreaterThanOrEqual(0);
          expect(a.x + radius).toBeLessThanOrEqual(frame.width);
          expect(a.y - radius).toBeGreaterThanOrEqual(0);
          expect(a.y + radius).toBeLessThanOrEqual(frame.height);
          for (const b of spots.slice(i + 1)) {
            expect(Math.hypot(a.x - b.x, a.y - b.y)).toBeGreaterThanOrEqual(2 * radius + 8);
          }
        }
        const letterPixels = (Math.max(11, radius * 0.72) * pixels) / frame.width;
        expect(letterPixels).toBeGreaterThanOrEqual(9);
      }
    },
  );

  test.each([2, 8, 16, 32])("a ring of %i hosts is apart, whole and legible", (hosts) => {
    const ring = Array.from({ length: hosts }, (_, rank) => flight(rank, (rank + 1) % hosts, 0));
    const { frame, panels } = drawingOf(ring, hosts, () => 0, pixels);
    expect(panels).toHaveLength(1);
    const [panel] = panels as [Drawing["panels"][number]];
    expect(panel.title).toBeUndefined();
    const { spots, radius } = panel;
    for (const [i, a] of spots.entries()) {
      const number = { x: a.x + (a.label?.x ?? 0), y: a.y + (a.label?.y ?? 0) };
      for (const at of [number.x, number.y]) expect(at).toBeGreaterThan(10);
      expect(number.x).toBeLessThan(frame.width - 10);
      expect(number.y).toBeLessThan(frame.height - 10);
      for (const b of spots.slice(i + 1)) {
        expect(Math.hypot(a.x - b.x, a.y - b.y)).toBeGreaterThan(2 * radius + 8);
      }
    }
    const letter = spots[0]?.label === undefined ? Math.max(11, radius * 0.72) : 11;
    expect((letter * pixels) / frame.width).toBeGreaterThanOrEqual(9);
  });
});

test("a tree has the names of all its channels", () => {
  expect(drawn(8, 556, 4).panels.map(({ title }) => title)).toEqual([
    "tree A · channels 0, 2",
    "tree B · channels 1, 3",
  ]);
});

test("trees stand one above the other where they are wide or the room is narrow", () => {
  const isStacked = ({ panels }: Drawing): boolean => panels[0]?.corner.x === panels[1]?.corner.x;
  expect(isStacked(drawn(16, 556))).toBe(false);
  expect(isStacked(drawn(32, 556))).toBe(true);
  expect(isStacked(drawn(16, 356))).toBe(true);
});
