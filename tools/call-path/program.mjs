// Runs all-reduces with every function entry of the package recorded, and prints one line of JSON: for each kind of call the
// entries in order, with the index of the entry where its data moves. node tools/call-path/program.mjs sim|nccl

import { register } from "node:module";

const [kind] = process.argv.slice(2);

let entries;
globalThis.functionEntered = (file, name) => entries?.push([file, name]);
register("./enter-hooks.mjs", import.meta.url);

const { createWorld } = await import("twinccl");

/** First function in which data moves: of the arithmetic here, the submission of NCCL's function there. */
const movesData = {
  sim: ([file]) => file.startsWith("algorithms/arithmetic/"),
  nccl: ([file, name]) => file.endsWith("sys/call-list.ts") && name === "run",
};

async function open() {
  if (kind === "sim") {
    const { cpu, sim } = await import("twinccl/sim");
    return createWorld({ backend: sim({ executor: cpu() }), size: 4 });
  }
  const { nccl } = await import("twinccl/nccl");
  const { buildInert } = await import("../../bench/native/inert.mjs");
  const library = buildInert();
  return createWorld({ backend: nccl({ ncclLibrary: library, cudartLibrary: library }), size: 1 });
}

const paths = {};

/** Keeps what was entered since `entries` began. */
function keep(name) {
  const kept = entries;
  entries = undefined;
  paths[name] = { entries: kept, moved: kept.findIndex(movesData[kind]) };
}

/** Records an awaited call from the moment the last rank makes it until the first rank goes on. */
function recorder(size) {
  const arrived = new Map();
  return async (name, call) => {
    const count = (arrived.get(name) ?? 0) + 1;
    arrived.set(name, count);
    if (count === size) entries = [];
    await call();
    if (entries !== undefined) keep(name);
  };
}

const world = await open();
const recorded = recorder(world.size);
await world.run(async (comm) => {
  const send = comm.alloc("float32", 256);
  const call = () => comm.allReduce({ send, op: "sum" });
  await recorded("first", call);
  await recorded("second", call);
  for (let i = 0; i < 20; i++) await call();
  await recorded("in a loop", call);
  // Back to back: the call behind others that nothing awaited yet, until control is back with the program.
  const last = comm.rank === comm.size - 1;
  for (let i = 0; i < 20; i++) void call();
  if (last) entries = [];
  const op = call();
  if (last) keep("back to back");
  await op;
});
await world.close();
console.log(JSON.stringify(paths));
