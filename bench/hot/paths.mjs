// The hot paths by name: one step of each, its number of calls, and its requirements. `apart` gives
// the microseconds so far that do not count.
import { createWorld } from "twinccl";
import { nccl } from "twinccl/nccl";
import { sim } from "twinccl/sim";
import { buildInert, emptyingCaches } from "../native/inert.mjs";
import { smallProgram } from "./small-program.mjs";

const ranks = 8;
/** Calls of one run of a world, so that beginning and ending the run weigh little. */
const calls = 200;
/** Calls of one recording. */
const recorded = 100;
/** Calls of one group. */
const grouped = 20;
/** Replays of one run, so that recording weighs little. */
const replayed = 100;

/** A world that stays open, and a program that is run in it again and again. */
async function inWorld(backend, size, count, program) {
  const world = await createWorld({ backend, size });
  return { calls: count, step: () => world.run(program), close: () => world.close() };
}

async function allReduces(comm) {
  const send = comm.alloc("float32", 256);
  for (let i = 0; i < calls; i++) await comm.allReduce({ send, op: "sum" });
}

/** Calls on a TypedArray: each one is checked, matched and planned as a new call. */
async function arrays(comm) {
  const send = new Float32Array(256);
  for (let i = 0; i < calls; i++) await comm.allReduce({ send, op: "sum" });
}

async function barriers(comm) {
  for (let i = 0; i < calls; i++) await comm.barrier();
}

async function replays(comm) {
  const send = comm.alloc("float32", 256);
  const graph = await comm.capture(() => {
    for (let i = 0; i < recorded; i++) void comm.allReduce({ send, op: "sum" });
  });
  for (let i = 0; i < replayed; i++) await graph.replay();
}

/** Calls back to back, only the last of which is awaited, with buffers that stay, as those of a training loop do. */
function submitting() {
  const buffers = new Map();
  return async (comm) => {
    if (!buffers.has(comm.rank)) buffers.set(comm.rank, comm.alloc("float32", 256));
    return submits(comm, buffers.get(comm.rank));
  };
}

async function submits(comm, send) {
  let last;
  for (let i = 0; i < calls; i++) last = comm.allReduce({ send, op: "sum" });
  await last;
}

/** The same calls in groups. */
function grouping() {
  const buffers = new Map();
  return async (comm) => {
    if (!buffers.has(comm.rank)) {
      const all = comm.alloc("float32", grouped * 256);
      const views = Array.from({ length: grouped }, (_, i) => all.subarray(256 * i, 256 * i + 256));
      buffers.set(comm.rank, views);
    }
    const views = buffers.get(comm.rank);
    const each = () => {
      for (const send of views) void comm.allReduce({ send, op: "sum" });
    };
    let last;
    for (let i = 0; i < calls; i += grouped) last = comm.group(each);
    await last;
  };
}

/** Replays back to back of a recording that stays. */
function replaying() {
  const graphs = new Map();
  return async (comm) => {
    if (!graphs.has(comm.rank)) {
      const send = comm.alloc("float32", 256);
      graphs.set(comm.rank, await comm.capture(() => void comm.allReduce({ send, op: "sum" })));
    }
    const graph = graphs.get(comm.rank);
    let last;
    for (let i = 0; i < calls; i++) last = graph.replay();
    await last;
  };
}

function inert(options = {}) {
  const library = buildInert();
  return nccl({ ncclLibrary: library, cudartLibrary: library, ...options });
}

/** As much as the caches that belong to one processor hold, and more. */
const emptied = 4 * 2 ** 20;

/** A path over a library that leaves the caches empty behind every launch, as a driver does. */
async function cold(size, program) {
  const library = buildInert();
  const backend = nccl({ ncclLibrary: library, cudartLibrary: library });
  const path = await inWorld(backend, size, calls, program);
  return { ...path, apart: emptyingCaches(library, emptied) };
}

/** By name: what is measured, and how it is set up. */
export const paths = {
  "sim-call": {
    about: `all-reduce of 1 KiB float32 by ${ranks} simulated ranks, awaited, NCCL's plan`,
    open: () => inWorld(sim({ like: "nccl-2.28" }), ranks, calls, allReduces),
  },
  "sim-array": {
    about: "the same on an array, as a new call each time",
    open: () => inWorld(sim({ like: "nccl-2.28" }), ranks, calls, arrays),
  },
  "sim-ring": {
    about: "the same by the catalogue's ring",
    open: () => inWorld(sim({ algorithms: { allReduce: "ring" } }), ranks, calls, allReduces),
  },
  "sim-barrier": {
    about: `barrier of ${ranks} simulated ranks: a call without data`,
    open: () => inWorld(sim(), ranks, calls, barriers),
  },
  "sim-graph": {
    about: `a call of a recording of ${recorded} such all-reduces, replayed`,
    open: () => inWorld(sim({ like: "nccl-2.28" }), ranks, replayed * recorded, replays),
  },
  "small-programs": {
    about: "a world of 4 simulated ranks, three calls, and its end",
    open: async () => {
      let seed = 0;
      return { calls: 1, step: () => smallProgram(seed++), close: () => undefined };
    },
  },
  "submit-one": {
    about: "all-reduce submitted by one rank of the NCCL backend to a library that does nothing",
    open: () => inWorld(inert(), 1, calls, submitting()),
  },
  "submit-deadline": {
    about: "the same where every call has a deadline",
    open: () => inWorld(inert({ timeoutMs: 60_000 }), 1, calls, submitting()),
  },
  "submit-group": {
    about: `the same as submit-one in groups of ${grouped}`,
    open: () => inWorld(inert(), 1, calls, grouping()),
  },
  "submit-four": {
    about: "the same as submit-one by four ranks of one process",
    open: () => inWorld(inert(), 4, calls, submitting()),
  },
  "submit-eight": {
    about: "the same as submit-one by eight ranks of one process",
    open: () => inWorld(inert(), 8, calls, submitting()),
  },
  "replay-eight": {
    about: "a replay of a recorded call by eight ranks of one process",
    open: () => inWorld(inert(), 8, calls, replaying()),
  },
  "cold-one": {
    about: "submit-one where a driver leaves nothing of ours in the caches; its time is taken off",
    open: () => cold(1, submitting()),
  },
  "cold-eight": {
    about: "submit-eight in the same way",
    open: () => cold(8, submitting()),
  },
  "cold-replay-eight": {
    about: "replay-eight in the same way",
    open: () => cold(8, replaying()),
  },
};
