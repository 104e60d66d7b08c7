// Measures rows on all peers, interleaved: round after round, and within a round one row on every peer in turn.
import { ratiosOf } from "./ratio.mjs";

/** The middle one of the samples, with the range. */
export function spread(samples) {
  const sorted = [...samples].sort((a, b) => a - b);
  return {
    median_us: sorted[Math.floor((sorted.length - 1) / 2)],
    least_us: sorted[0],
    most_us: sorted.at(-1),
    samples: sorted.length,
  };
}

/** The slowest process's times. */
function slowest(answers) {
  const most = (field) => Math.max(...answers.map((answer) => answer[field]));
  const has = (field) => answers.every((answer) => typeof answer[field] === "number");
  return {
    wall: most("wall_us"),
    ...(has("event_us") && { event: most("event_us") }),
    ...(has("issue_us") && { issue: most("issue_us") }),
    right: answers.every(({ right }) => right === null || right === true),
  };
}

/** One peer's part of one row. */
class Cell {
  walls = [];
  events = [];
  issues = [];
  right = true;
  error;

  async measure(peer, line) {
    if (this.error !== undefined) return;
    const { answers, error } = await peer.ask(line);
    if (error !== undefined) {
      this.error = error;
      return;
    }
    const { wall, event, issue, right } = slowest(answers);
    this.walls.push(wall);
    if (event !== undefined) this.events.push(event);
    if (issue !== undefined) this.issues.push(issue);
    this.right &&= right;
  }

  result() {
    if (this.walls.length === 0) return { not_run: this.error ?? "out of time" };
    return {
      ...spread(this.walls),
      turns_us: this.walls.map((us) => Number(us.toFixed(3))),
      ...(this.events.length > 0 && { device_us: spread(this.events).median_us }),
      ...(this.issues.length > 0 && { issue_us: spread(this.issues).median_us }),
      right: this.right,
    };
  }
}

/** Calls of every collective and mode that each peer makes before anything counts: programs run longer than a compiler learns. */
const warmingCalls = 4000;

/** Where the number of timed calls stands in a command. */
const iterationsAt = 5;

/** Has every peer make the same calls as it will be measured with, small ones and many. */
export async function warm(rows, peers) {
  const smallest = new Map();
  for (const row of rows) {
    const key = `${row.collective} ${row.mode}`;
    if (!smallest.has(key)) smallest.set(key, row);
  }
  for (const row of smallest.values()) await warmBy(row.command(0), peers);
}

/** The same for awaited calls, which run other code: in their first two thousand it is compiled, again and again. */
export async function warmAwaited(rows, peers) {
  for (const { command } of rows) await warmBy(command, peers);
}

/** A peer repeats its refusals when it is measured. */
async function warmBy(command, peers) {
  const words = command.split(" ");
  words[iterationsAt] = String(warmingCalls);
  for (const peer of peers) await peer.ask(words.join(" "));
}

/**
 * Measures all rows `rounds` times, or for as long as there is time, and in each round so many times as a row has turns.
 * Results are checked in the first round. The order of the peers changes from turn to turn, so that none is always measured
 * after the same other one.
 *
 * `pairs` are the names of peers with a ratio that matters. Only they are measured in every turn of a round, the others
 * in its first. The time that is left after the rounds is theirs too: it goes to the rows with the least certain ratios,
 * however large they are, beside the `finest` difference that matters in a row.
 */
export async function compare(rows, peers, { rounds, deadline, pairs = [], onProgress }) {
  const cells = rows.map(() => new Map(peers.map((peer) => [peer, new Cell()])));
  const often =
    pairs.length === 0 ? peers : peers.filter(({ name }) => pairs.flat().includes(name));
  const isOver = () => performance.now() > deadline;
  let turn = 0;
  const measure = async (at, measured, check) => {
    const line = rows[at].command(check);
    for (const peer of inOrder(measured, turn++)) await cells[at].get(peer).measure(peer, line);
  };
  for (let round = 0; round < rounds; round++) {
    for (const [at, row] of rows.entries()) {
      if (isOver()) return resultsOf(rows, cells, round);
      onProgress?.({ round, rounds, at, row });
      for (let again = 0; again < (row.turns ?? 1); again++) {
        const first = again === 0;
        await measure(at, first ? peers : often, first && round === 0 ? 1 : 0);
      }
    }
  }
  while (pairs.length > 0 && !isOver()) {
    const at = leastCertain(rows, cells, pairs);
    for (let again = 0; again < (rows[at].turns ?? 1); again++) await measure(at, often, 0);
  }
  return resultsOf(rows, cells, rounds);
}

/** The row with the most uncertain median ratio of a pair, relative to the difference that matters in it (`finest`). */
function leastCertain(rows, cells, pairs) {
  const doubts = cells.map((row, at) => {
    const walls = new Map(Array.from(row, ([{ name }, cell]) => [name, cell.walls]));
    const doubt = pairs.map(([a, b]) => doubtOf(ratiosOf(walls.get(a), walls.get(b))));
    return Math.max(...doubt) / (rows[at].finest ?? 1);
  });
  return doubts.indexOf(Math.max(...doubts));
}

/** The uncertainty of a median: by the width of the middle half, the less the more samples there are. */
function doubtOf(samples) {
  if (samples.length === 0) return 0;
  const sorted = [...samples].sort((a, b) => a - b);
  const at = (part) => sorted[Math.round(part * (sorted.length - 1))];
  return (at(0.75) - at(0.25)) / Math.sqrt(sorted.length);
}

/** The peers, another one first in every turn, and backwards once each was first. */
function inOrder(peers, turn) {
  const first = turn % peers.length;
  const turned = [...peers.slice(first), ...peers.slice(0, first)];
  return Math.floor(turn / peers.length) % 2 === 0 ? turned : turned.reverse();
}

function resultsOf(rows, cells, rounds) {
  const results = rows.map(({ command: _, traffic: __, ...row }, at) => ({
    ...row,
    peers: Object.fromEntries(Array.from(cells[at], ([peer, cell]) => [peer.name, cell.result()])),
  }));
  return { rounds, results };
}

/** Awaited latency on every peer, `rounds` times in turn; the slowest rank's median and p99. */
export async function latencies(rows, peers, rounds) {
  const results = [];
  for (const { mode, command } of rows) {
    const found = new Map(peers.map((peer) => [peer, { medians: [], p99s: [], error: undefined }]));
    for (let round = 0; round < rounds; round++) {
      for (const peer of peers) {
        const cell = found.get(peer);
        if (cell.error !== undefined) continue;
        const { answers, error } = await peer.ask(command);
        cell.error = error;
        if (error !== undefined) continue;
        cell.medians.push(Math.max(...answers.map(({ median_us }) => median_us)));
        cell.p99s.push(Math.max(...answers.map(({ p99_us }) => p99_us)));
      }
    }
    const cells = Array.from(found, ([peer, { medians, p99s, error }]) => [
      peer.name,
      medians.length === 0
        ? { not_run: error ?? "not measured" }
        : { ...spread(medians), p99_us: spread(p99s).median_us },
    ]);
    results.push({ mode, bytes: 1024, peers: Object.fromEntries(cells) });
  }
  return results;
}
