// Has the main threads of the same rank of all peers run on the same processor: one of them is at work at a time, and processors
// that others share are not equally fast. Other threads stay where the system wants them.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";

/** The processors that this process may use: `0-3,8` is 0, 1, 2, 3, 8. */
export function allowed(list) {
  return list.split(",").flatMap((range) => {
    const [from, to = from] = range.split("-").map(Number);
    return Array.from({ length: to - from + 1 }, (_, at) => from + at);
  });
}

/** A processor for every rank, far from each other and from the first, which interrupts like. */
export function processorsFor(ranks, processors) {
  const apart = processors.length / ranks;
  return Array.from({ length: ranks }, (_, rank) => processors[Math.floor((rank + 0.5) * apart)]);
}

/**
 * Pins the main threads of all peers; to be called when they have started their other threads, which would inherit it. Gives
 * the processors by rank, or why nothing was pinned.
 */
export function pinPeers(peers, ranks) {
  let list;
  try {
    list = /^Cpus_allowed_list:\s*(\S+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1];
  } catch {
    // Not Linux.
  }
  if (list === undefined) return { not_pinned: "the system does not tell its processors" };
  const processors = allowed(list);
  if (processors.length < 2 * ranks) return { not_pinned: `only ${processors.length} processors` };
  const byRank = processorsFor(ranks, processors);
  for (const [rank, pid] of peers.flatMap((peer) => [...peer.processes.entries()])) {
    const { error, status, stderr } = spawnSync(
      "taskset",
      ["--cpu-list", "--pid", `${byRank[rank]}`, `${pid}`],
      { encoding: "utf8" },
    );
    if (error !== undefined) return { not_pinned: error.message };
    if (status !== 0) return { not_pinned: stderr.trim() };
  }
  return { processors: byRank };
}

/** For people. */
export function pinnedText({ processors, not_pinned: reason }) {
  return reason === undefined ? `on processors ${processors.join(", ")}` : `not pinned: ${reason}`;
}
