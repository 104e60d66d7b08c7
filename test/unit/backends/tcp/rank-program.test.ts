/** The lanes of a rank: channels that move data alike are one. */
import { input, type Lane, output, ProgramBuilder, scratch } from "twinccl/algorithms";
import { expect, test } from "vitest";
import { rankProgram, widestMove } from "../../../../src/backends/tcp/rank-program.ts";

/** Each of two ranks sends a chunk to the other one, in each channel as `write` says. */
function exchange(channels: number, write: (lane: Lane, peer: number, channel: number) => void) {
  const head = { collective: "allReduce", algorithm: "test", ranks: 2, root: -1 } as const;
  const program = new ProgramBuilder({ ...head, channels, chunksPerBlock: channels });
  for (let channel = 0; channel < channels; channel++) {
    program.everyRank((lane, rank) => write(lane, 1 - rank, channel), channel);
  }
  return program.build();
}

test("channels with the same steps are one lane, with their chunks side by side", () => {
  const program = exchange(3, (lane, peer, channel) => {
    lane.send(input(channel), peer).recv(peer, output(channel));
  });
  const { lanes, receives, sendsTo, receivesFrom } = rankProgram(program, 0);
  expect(lanes).toMatchObject([
    [
      { to: 1, read: [0, 4, 8], write: undefined },
      { from: 1, read: undefined, write: [1, 5, 9] },
    ],
  ]);
  expect(receives).toEqual([new Map([[1, 1]])]);
  expect([[...sendsTo], [...receivesFrom]]).toEqual([[1], [1]]);
  expect(widestMove(program)).toBe(3);
});

test("channels with another order, buffer or use of a chunk have lanes of their own", () => {
  const ways: ((lane: Lane, peer: number, channel: number) => void)[] = [
    (lane, peer, at) => lane.send(input(at), peer).recv(peer, output(at)),
    (lane, peer, at) => lane.recv(peer, output(at)).send(input(at), peer),
    (lane, peer, at) => lane.send(input(at), peer).recv(peer, scratch(at)),
    (lane, peer, at) => lane.recv(peer, output(at)).send(output(at), peer),
  ];
  const program = exchange(4, (lane, peer, channel) => ways[channel]?.(lane, peer, channel));
  expect(rankProgram(program, 1).lanes.length).toBe(4);
  expect(widestMove(program)).toBe(1);
});
