// What is compared: collectives, modes, sizes, and how often each is called. Every peer gets the same numbers.
import { heaviestRank, skewedTraffic } from "twinccl/bench";

/** Calls in one CUDA graph, as many as nccl-tests puts into one. */
const graphCalls = 20;

/** Most important first: what does not fit into the time is left out from the end. */
const collectives = [
  "allReduce",
  "allGather",
  "reduceScatter",
  "broadcast",
  "allToAll",
  "allToAllv",
];

/** Collectives for which NCCL has kernels on symmetric memory. */
const symmetricOnes = new Set(["allReduce", "allGather", "reduceScatter"]);

const powers = (...exponents) => exponents.map((exponent) => 2 ** exponent);

const sizesOf = (collective, quick) => {
  if (quick) return collective === "allReduce" ? powers(3, 11, 15, 19, 23, 27) : powers(11, 19, 25);
  if (collective === "allReduce") return powers(3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29);
  return powers(3, 7, 11, 15, 19, 23, 27, 29);
};

/**
 * Timed calls, a multiple of the calls in a graph, and warm-up calls. Small calls are many: a peer that waited for its turn
 * needs some milliseconds until it has a processor of its own again, and warm caches. They have several turns in a round: the
 * speed of shared processors changes, and only neighbouring turns are alike. Where the cost of a call shows, warm-up calls are
 * more than the 64 after which repeated calls become a list. `finest` is the difference between two peers that matters.
 */
function repeats(bytes) {
  if (bytes <= 2 ** 15) return { iterations: 1000, warmup: 200, turns: 2, finest: 0.1 };
  if (bytes < 2 ** 20) return { iterations: 400, warmup: 100, turns: 2, finest: 0.1 };
  if (bytes <= 2 ** 21) return { iterations: 400, warmup: 100, turns: 1, finest: 0.03 };
  if (bytes <= 2 ** 23) return { iterations: 200, warmup: 70, turns: 1, finest: 0.03 };
  if (bytes <= 2 ** 25) return { iterations: 40, warmup: 10, turns: 1, finest: 0.03 };
  return { iterations: 20, warmup: 5, turns: 1, finest: 0.03 };
}

/** The modes of a collective: how its calls are issued, and in which memory. */
function modesOf(collective) {
  const modes = [
    { mode: "eager", graphCalls: 0, symmetric: 0 },
    { mode: "graph", graphCalls, symmetric: 0 },
  ];
  if (!symmetricOnes.has(collective)) return modes;
  return [
    ...modes,
    { mode: "symmetric", graphCalls: 0, symmetric: 1 },
    { mode: "symmetric+graph", graphCalls, symmetric: 1 },
  ];
}

/** Count and size of a call of about so many bytes, as nccl-tests counts them for the collective. */
function shapeOf(collective, bytes, ranks) {
  const elements = Math.max(
    bytes / 4,
    collective === "allReduce" || collective === "broadcast" ? 1 : ranks,
  );
  if (collective === "allReduce" || collective === "broadcast") {
    return { count: elements, bytes: 4 * elements, traffic: [] };
  }
  if (collective === "allToAllv") {
    const traffic = skewedTraffic(elements, ranks, 0.5, 0);
    const heaviest = heaviestRank(traffic);
    return { count: heaviest, bytes: 4 * heaviest, traffic };
  }
  const count = Math.floor(elements / ranks);
  return { count, bytes: 4 * count * ranks, traffic: [] };
}

/** Every row of the comparison. */
export function rowsOf(ranks, { quick }) {
  return collectives.flatMap((collective) =>
    modesOf(collective).flatMap(({ mode, graphCalls: calls, symmetric }) =>
      sizesOf(collective, quick).map((wanted) => {
        const { count, bytes, traffic } = shapeOf(collective, wanted, ranks);
        const { iterations, warmup, turns, finest } = repeats(bytes);
        return {
          ...{ collective, mode, bytes, count, iterations, warmup, turns, finest, traffic },
          command: (check) =>
            [
              "measure",
              collective,
              calls,
              symmetric,
              count,
              iterations,
              warmup,
              check,
              ...traffic.flat(),
            ].join(" "),
        };
      }),
    ),
  );
}

/** Buffers of every peer hold this much: an all-to-allv may round up. */
export const maxBytes = 2 ** 29 + 4096;

/** The simulation's measurement of a row: few calls, and nothing large, because it computes every result itself. */
export function simRow(row, ranks) {
  if (row.mode !== "eager" || row.bytes > 2 ** 22) return undefined;
  const [verb, collective, calls, symmetric, count, , , check, ...traffic] = row
    .command(1)
    .split(" ");
  const words = [verb, collective, calls, symmetric, count, 20, 5, check, ...traffic];
  return { ...row, ranks, iterations: 20, warmup: 5, turns: 1, command: () => words.join(" ") };
}

/** Awaited calls, one at a time. */
export const latencyRows = [
  { mode: "eager", command: "latency allReduce 0 0 256 500 100 0" },
  { mode: "graph", command: "latency allReduce 1 0 256 500 100 0" },
  { mode: "symmetric", command: "latency allReduce 0 1 256 500 100 0" },
  { mode: "symmetric+graph", command: "latency allReduce 1 1 256 500 100 0" },
];
