// The rows of `npm run bench:peers`: what is measured, in which unit, and what is wanted of it.
//
// `run` gives the samples of one round, or a reason why there are none. A row that is `once` is measured in the first
// round alone, because it takes long; the engine's rows read theirs off one run of its benches a round.

import { alone } from "./alone.mjs";
import { buildPeer } from "./build.mjs";
import { copies, openMpi, smpiRing } from "./peers.mjs";
import { engineFigures, slowestFold, verifyAll } from "./scale.mjs";
import { allReduces, allToAllvs, wideRings } from "./subjects.mjs";

const bytes = 2 ** 26;
const calls = 3;
const million = 2 ** 20;

const copy = "copy of 8 x 64 MiB, two threads";
const large = (dtype) => `all-reduce, ${dtype}, 8 x 64 MiB`;
const small = "all-reduce, float32, 8 x 1 KiB";
const exchange = "all-to-allv, skewed, 8 x 64 MiB";
const mpi = (name) => `Open MPI ${name}`;
const ring = "ring all-reduce, 1,024 ranks, ports and credits";
const smpi = "SMPI, ring all-reduce, 1,024 ranks";

/** Every row, in the order of the table; what others need is built into `folder`. */
export function rowsOf(folder) {
  const probe = buildPeer("copy-probe", folder);
  const ompi = buildPeer("mpi-all-reduce", folder);
  const simgrid = buildPeer("smpi-ring", folder);
  return [
    { name: copy, run: () => copies(probe, 2, 8, bytes, calls) },
    { name: mpi(large("float32")), run: () => openMpi(ompi, "allreduce", bytes, calls) },
    ...["float32", "bfloat16", "float16", "int8"].map((dtype) => ({
      name: large(dtype),
      run: () => allReduces(dtype, bytes, calls),
    })),
    { name: mpi(exchange), run: () => openMpi(ompi, "alltoallv", bytes, calls) },
    { name: exchange, run: () => allToAllvs(bytes, calls) },
    { name: mpi(small), run: () => openMpi(ompi, "allreduce", 1024, 400) },
    { name: `${small}, awaited`, atMost: 0.008, run: () => alone("smallCalls", 20) },
    { name: `${small}, in a graph of 100`, atMost: 0.001, run: () => alone("graphCalls", 20) },
    {
      name: "small programs on one core",
      unit: "/s",
      atLeast: 5000,
      run: () => alone("smallPrograms", 5000),
    },
    {
      name: "ring all-reduce of data, 256 x 1 MiB",
      unit: "s",
      atMost: 0.5,
      run: () => wideRings(256, million, calls),
    },
    ...engineRows(folder),
    { name: smpi, unit: "s", once: true, run: () => smpiRing(simgrid, folder, 1024, million) },
    {
      name: "verification of every program for 1 to 256 ranks",
      unit: "s",
      once: true,
      atMost: 30,
      run: verifyAll,
    },
  ];
}

/** Rows that one run of the engine's benches fills, once a round. */
function engineRows(folder) {
  let found;
  let foundIn = -1;
  const row = (name, unit, goal, read) => ({
    name,
    unit,
    ...goal,
    run: (round) => {
      if (foundIn !== round) found = engineFigures(folder);
      foundIn = round;
      return found.reason === undefined ? { times: [read(found.figures)] } : found;
    },
  });
  const events = "ring, 1,024 ranks, events with credits";
  const figure = (name) => (figures) => figures.get(name);
  return [
    row(ring, "s", { atMost: 0.8 }, figure(events)),
    row(`${ring}: memory`, "MB", { atMost: 150 }, figure(`${events}: peak`)),
    row(`${ring}: rate`, "million messages/s", { atLeast: 3 }, figure(`${events}: rate`)),
    row(`${ring}, traced`, "s", { atMost: 2 }, figure(`${events} and trace`)),
    row(`${ring}, traced: memory`, "MB", { atMost: 150 }, figure(`${events} and trace: peak`)),
    row(
      "binomial reduce, 2^20 ranks",
      "s",
      { atMost: 3 },
      figure("binomial reduce, 2^20 ranks, events with credits"),
    ),
    row(
      "binomial reduce, 2^20 ranks: memory",
      "MB",
      { atMost: 500 },
      figure("binomial reduce, 2^20 ranks, events with credits: peak"),
    ),
    row("slowest symmetric program, 2^20 ranks", "ms", { atMost: 10 }, slowestFold),
  ];
}

/** The required speed of one row over another. */
export const ratios = [
  [large("float32"), mpi(large("float32")), 3],
  [large("float32"), copy, 0.8],
  [large("bfloat16"), copy, 0.6],
  [large("float16"), copy, 0.6],
  [large("int8"), copy, 0.6],
  [exchange, mpi(exchange)],
  [exchange, copy, 0.85],
  [`${small}, awaited`, mpi(small), 29 / 8],
  [ring, smpi],
];
