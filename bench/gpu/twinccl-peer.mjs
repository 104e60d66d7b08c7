// twinccl as it is measured beside other libraries; the protocol is that of bench/native/call.hpp.
//   node twinccl-peer.mjs nccl|sim one SIZE MAX_BYTES    all ranks in this process
//   node twinccl-peer.mjs nccl rank SIZE MAX_BYTES       one rank; the launcher's variables say which
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { connect, createWorld } from "twinccl";
import { nccl } from "twinccl/nccl";
import { sim } from "twinccl/sim";

const [backendName, how, sizeText, maxBytes] = process.argv.slice(2);
const size = Number(sizeText);
const backend = backendName === "sim" ? sim() : nccl();

/** One line: VERB COLLECTIVE GRAPH_CALLS SYMMETRIC COUNT ITERATIONS WARMUP CHECK [TRAFFIC...]. */
function commandOf(line) {
  const [verb, collective, ...numbers] = line.split(" ");
  const [graphCalls, symmetric, count, iterations, warmup, check, ...traffic] = numbers.map(Number);
  const rows = Array.from({ length: size }, (_, at) => traffic.slice(at * size, (at + 1) * size));
  return {
    verb,
    collective,
    graphCalls,
    symmetric,
    count,
    iterations,
    warmup,
    check,
    traffic: rows,
  };
}

const sum = (counts) => counts.reduce((total, count) => total + count, 0);

/** A rank's call, ready to be made, and its result. */
function callOf(comm, { collective, count, traffic }, { a, b }) {
  const few = (buffer) => buffer.subarray(0, count);
  const many = (buffer) => buffer.subarray(0, count * size);
  switch (collective) {
    case "allReduce": {
      const send = few(a);
      return { call: () => comm.allReduce({ send, op: "sum" }), result: send };
    }
    case "broadcast": {
      const recv = few(a);
      return { call: () => comm.broadcast({ recv, root: 0 }), result: recv };
    }
    case "allGather": {
      const [send, recv] = [few(a), many(b)];
      return { call: () => comm.allGather({ send, recv }), result: recv };
    }
    case "reduceScatter": {
      const [send, recv] = [many(a), few(b)];
      return { call: () => comm.reduceScatter({ send, recv, op: "sum" }), result: recv };
    }
    case "allToAll": {
      const [send, recv] = [many(a), many(b)];
      return { call: () => comm.allToAll({ send, recv }), result: recv };
    }
    case "allToAllv": {
      const sendCounts = traffic[comm.rank];
      const recvCounts = traffic.map((row) => row[comm.rank]);
      const [send, recv] = [a.subarray(0, sum(sendCounts)), b.subarray(0, sum(recvCounts))];
      const call = () => comm.allToAllv({ send, recv, sendCounts, recvCounts });
      return { call, result: recv };
    }
    default:
      throw new Error(`no such collective: ${collective}`);
  }
}

const kept = new Map();

/** Two buffers of the largest size; symmetric ones are made on first use. */
function buffersOf(comm, symmetric) {
  const key = `${comm.rank} ${symmetric}`;
  if (!kept.has(key)) {
    const make = () =>
      comm.alloc("float32", Number(maxBytes) / 4, symmetric ? { symmetric: true } : undefined);
    kept.set(key, { a: make(), b: make() });
  }
  return kept.get(key);
}

/** Makes n calls back to back and waits for the last one. */
async function repeat(n, call) {
  let last;
  for (let at = 0; at < n; at++) last = call();
  const issuedAt = performance.now();
  await last;
  return issuedAt;
}

/** Records so many of the calls. */
function record(comm, calls, call) {
  return comm.capture(() => {
    for (let at = 0; at < calls; at++) void call();
  });
}

async function measure(comm, command, call) {
  const { graphCalls, iterations, warmup } = command;
  await repeat(warmup, call);
  if (graphCalls === 0) return timed(comm, iterations, call);
  const graph = await record(comm, graphCalls, call);
  const replay = () => graph.replay();
  await replay();
  const times = await timed(comm, iterations / graphCalls, replay);
  // As the native loop does: while one is left, NCCL has more to do for every other call.
  graph.dispose();
  return times;
}

/** When n calls began, had been made, and were done. */
async function timed(comm, n, call) {
  await comm.barrier();
  const began = performance.now();
  const issuedAt = await repeat(n, call);
  return { began, issuedAt, ended: performance.now() };
}

async function latency(comm, command, call) {
  const { graphCalls, iterations, warmup } = command;
  const graph = graphCalls > 0 ? await record(comm, 1, call) : undefined;
  const next = graph === undefined ? call : () => graph.replay();
  await comm.barrier();
  const samples = [];
  for (let at = -warmup; at < iterations; at++) {
    const began = performance.now();
    await next();
    if (at >= 0) samples.push((performance.now() - began) * 1000);
  }
  graph?.dispose();
  samples.sort((x, y) => x - y);
  return { samples };
}

/** Ones in, one call, and the first, middle and last element must be the number of contributions. */
async function isRight(comm, { collective }, { call, result }, { a, b }) {
  a.fill(collective === "broadcast" && comm.rank !== 0 ? 0 : 1);
  b.fill(0);
  await call();
  const expected = collective === "allReduce" || collective === "reduceScatter" ? size : 1;
  let right = true;
  if (result.length > 0) {
    for (const at of [0, result.length >> 1, result.length - 1]) {
      const [found] = await result.subarray(at, at + 1).toHost();
      right &&= found === expected;
    }
  }
  // Zeros again, so that no repeated sum ever grows.
  a.fill(0);
  return right;
}

async function answerOf(comm, command) {
  const buffers = buffersOf(comm, command.symmetric === 1);
  const prepared = callOf(comm, command, buffers);
  if (command.verb === "latency") return latency(comm, command, prepared.call);
  const times = await measure(comm, command, prepared.call);
  const right = command.check === 0 ? null : await isRight(comm, command, prepared, buffers);
  return { ...times, right };
}

/** The results of this process's ranks, as one answer. */
function combined({ verb, iterations }, found) {
  if (verb === "latency") {
    const { samples } = found[0];
    const at = (part) => samples[Math.floor(part * (samples.length - 1))];
    return { median_us: at(0.5), p99_us: at(0.99) };
  }
  const began = Math.min(...found.map((each) => each.began));
  const perCall = (ms) => (1000 * ms) / iterations;
  return {
    wall_us: perCall(Math.max(...found.map((each) => each.ended)) - began),
    issue_us: perCall(Math.max(...found.map((each) => each.issuedAt)) - began),
    right: found[0].right === null ? null : found.every((each) => each.right),
  };
}

/** The file of the NCCL that this process has loaded. */
function library() {
  const maps = readFileSync("/proc/self/maps", "utf8").split("\n");
  return maps
    .find((line) => line.includes("libnccl.so"))
    ?.split(/\s+/)
    .at(-1);
}

const say = (reply) => process.stdout.write(`${JSON.stringify(reply)}\n`);

/** The headline of an error; of a failed run, that of its cause. */
function reasonOf(error) {
  const inner = error?.name === "WorldError" && error.cause instanceof Error ? error.cause : error;
  return `${inner?.name}: ${inner?.message}`.split("\n")[0];
}

async function open() {
  if (how === "rank") {
    const comm = await connect({ backend, size });
    return { run: async (program) => [await program(comm)], close: () => comm.close() };
  }
  const world = await createWorld({ backend, size, name: "bench" });
  return { run: (program) => world.run(program), close: () => world.close() };
}

const world = await open();
await world.run((comm) => comm.barrier());
say({ hello: `twinccl ${backendName}`, library: library() });
for await (const line of createInterface({ input: process.stdin })) {
  if (line === "quit") break;
  try {
    const command = commandOf(line);
    say(combined(command, await world.run((comm) => answerOf(comm, command))));
  } catch (error) {
    say({ error: reasonOf(error) });
  }
}
await world.close();
process.exitCode = 0;
