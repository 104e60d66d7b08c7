/** A process's report on its ends of messages. */
import { expect, test } from "vitest";
import type { RankCall, RemoteTransfer } from "../../../src/api/backend-entry.ts";
import { CallCounters } from "../../../src/job/comm-status.ts";

/** Ends of rank 0 among three: `"send 1 #2"` is its third message to 1. */
function remote(...texts: string[]): RemoteTransfer[] {
  return texts.map((text) => {
    const [direction, peer, number] = text.split(/ #?/u) as ["send" | "recv", string, string];
    const call = { rank: 0 } as RankCall;
    return { direction, peer: Number(peer), number: Number(number), call };
  });
}

/** Pairs of ranks by number: 0>1 is 1, 0>2 is 2, 1>0 is 3, 2>0 is 6. */
const [to1, to2, from1] = [1, 2, 3];

test("submitted messages count, and wait for no rank", () => {
  const made = new CallCounters(3);
  expect(made.messageCounts()).toEqual({ posted: [], waiting: [] });
  made.messagesSubmitted(remote("send 1 #0", "recv 1 #0", "send 1 #1"));
  made.messagesSubmitted(remote("send 2 #0"));
  const counts = [
    [to1, 2],
    [from1, 1],
    [to2, 1],
  ];
  expect(made.messageCounts()).toEqual({ posted: counts, waiting: [] });
});

test("messages at a barrier count until submission, the first of each pair as waiting", () => {
  const made = new CallCounters(3);
  made.messagesSubmitted(remote("send 1 #0"));
  const open = remote("send 1 #1", "send 2 #0", "send 1 #2");
  made.awaitPeers(open);
  const counts = [
    [to1, 3],
    [to2, 1],
  ];
  const first = [
    [to1, 1],
    [to2, 0],
  ];
  expect(made.messageCounts()).toEqual({ posted: counts, waiting: expect.arrayContaining(first) });
  expect(made.messageCounts().waiting).toHaveLength(2);
  made.messagesSubmitted(open);
  expect(made.messageCounts()).toEqual({ posted: counts, waiting: [] });
});

test("numbers of refused messages are used again", () => {
  const made = new CallCounters(3);
  made.messagesSubmitted(remote("send 1 #0"));
  const open = remote("send 1 #1", "send 2 #0", "send 1 #2");
  made.awaitPeers(open);
  made.messagesFailed(open);
  const counts = [
    [to1, 1],
    [to2, 0],
  ];
  expect(made.messageCounts()).toEqual({ posted: counts, waiting: [] });
});
