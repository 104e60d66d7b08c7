// Every collective on one communicator, for every dtype; gives what the rank holds afterwards, by call, as hex.
// Contents differ by rank and element. `exact`: sums, products and averages of them are exact in any order.

import { createHash } from "node:crypto";

/** Bits of exponent and fraction of the floats. */
const floats = {
  float16: [5, 10],
  bfloat16: [8, 7],
  float8e4m3: [4, 3],
  float8e5m2: [5, 2],
  float32: [8, 23],
  float64: [11, 52],
};
const arrays = {
  int8: Int8Array,
  uint8: Uint8Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  float8e4m3: Uint8Array,
  float8e5m2: Uint8Array,
  float32: Float32Array,
  float64: Float64Array,
};

/** 32 random bits for each key. */
function random(...key) {
  let x = 0x9e3779b9;
  for (const part of key) {
    x = Math.imul(x ^ part ^ (x >>> 16), 0x7feb352d);
    x = Math.imul(x ^ (x >>> 15), 0x846ca68b) + 0x2545f491;
  }
  return (x ^ (x >>> 16)) >>> 0;
}

/** The contents that a rank sends: any integer, or floats from 1/2 to below 2 of both signs. */
function contents(dtype, count, rank, seed, exact) {
  const array = new arrays[dtype](count);
  const width = array.BYTES_PER_ELEMENT;
  const view = new DataView(array.buffer);
  for (let i = 0; i < count; i++) {
    let bits = (BigInt(random(rank, i, seed)) << 32n) | BigInt(random(rank, i, seed, 1));
    if (dtype in floats) {
      const [exponent, fraction] = floats[dtype].map(BigInt);
      const bias = (1n << (exponent - 1n)) - 1n;
      const power = exact ? bias : bias - ((bits >> 60n) & 1n);
      const rest = exact ? 0n : BigInt.asUintN(Number(fraction), bits);
      bits = ((bits >> 63n) << (exponent + fraction)) | (power << fraction) | rest;
    }
    for (let byte = 0; byte < width; byte++) {
      view.setUint8(i * width + byte, Number((bits >> BigInt(8 * byte)) & 0xffn));
    }
  }
  return array;
}

/** The bytes in hex; of many their hash, so that all results of a rank are one line that the launcher does not cut. */
function hex(array) {
  const bytes = Buffer.from(array.buffer, array.byteOffset, array.byteLength);
  return bytes.length <= 32
    ? bytes.toString("hex")
    : createHash("sha256").update(bytes).digest("hex").slice(0, 32);
}

/** Runs all and gives `{ "allReduce int8 sum": "00…", … }`. */
export async function everyCall(comm, { exact = false, symmetric = true } = {}) {
  const { rank, size } = comm;
  const found = {};
  const keep = async (name, buffer) => {
    if (name in found) throw new Error(`two results named ${name}`);
    found[name] = hex(await buffer.toHost());
  };
  let seed = 0;
  for (const dtype of Object.keys(arrays)) {
    if (!comm.supports({ collective: "allReduce", dtype, op: "sum", count: 1 })) continue;
    const filled = (count, options) =>
      comm.alloc(dtype, count, options).copyFrom(contents(dtype, count, rank, seed++, exact));
    const empty = (count) => comm.alloc(dtype, count);
    const operators = ["sum", "prod", "min", "max", { preMul: 2 }];
    if (!exact || Number.isInteger(Math.log2(size))) operators.push("avg");
    for (const op of operators) {
      const named = `${dtype} ${typeof op === "string" ? op : "preMul"}`;
      const data = filled(101 + size);
      await comm.allReduce({ send: data.subarray(3), op });
      await keep(`allReduce ${named}`, data);
      const [one, root] = [filled(17), seed % size];
      await comm.reduce({ send: one, op, root });
      if (rank === root) await keep(`reduce ${named}`, one);
      const [parts, part] = [filled(7 * size), empty(7)];
      await comm.reduceScatter({ send: parts, recv: part, op });
      await keep(`reduceScatter ${named}`, part);
      const sendCounts = Array.from({ length: size }, (_, to) => (to * 3) % 5);
      const some = empty(sendCounts[rank]);
      const all = filled(sendCounts.reduce((a, b) => a + b));
      await comm.reduceScatterv({ send: all, recv: some, op, sendCounts });
      await keep(`reduceScatterv ${named}`, some);
    }
    const root = seed % size;
    const received = filled(19);
    await comm.broadcast({ recv: received, root });
    await keep(`broadcast ${dtype}`, received);
    const gathered = empty(5 * size);
    await comm.allGather({ send: filled(5), recv: gathered });
    await keep(`allGather ${dtype}`, gathered);
    const recvCounts = Array.from({ length: size }, (_, from) => (from * 2 + 1) % 4);
    const total = recvCounts.reduce((a, b) => a + b);
    const gatheredv = empty(total);
    await comm.allGatherv({ send: filled(recvCounts[rank]), recv: gatheredv, recvCounts });
    await keep(`allGatherv ${dtype}`, gatheredv);
    const collected = empty(total);
    const here = rank === root ? { recv: collected, recvCounts } : {};
    await comm.gather({ send: filled(recvCounts[rank]), root, ...here });
    await keep(`gather ${dtype}`, collected);
    const dealt = empty(recvCounts[rank]);
    const whole = filled(total);
    const dealer = rank === root ? { send: whole, sendCounts: recvCounts } : {};
    await comm.scatter({ recv: dealt, root, ...dealer });
    await keep(`scatter ${dtype}`, dealt);
    const exchanged = empty(2 * size);
    await comm.allToAll({ send: filled(2 * size), recv: exchanged });
    await keep(`allToAll ${dtype}`, exchanged);
    const sendCounts = Array.from({ length: size }, (_, to) => (rank + 2 * to) % 4);
    const mine = filled(sendCounts.reduce((a, b) => a + b));
    const result = await comm.allToAllv({ send: mine, sendCounts });
    await keep(`allToAllv ${dtype}`, result.recv);
    found[`allToAllv ${dtype} counts`] = result.recvCounts.join();
    const [right, left] = [(rank + 1) % size, (rank + size - 1) % size];
    const came = empty(9);
    await comm.sendRecv({ send: filled(9), recv: came, to: right, from: left });
    await keep(`sendRecv ${dtype}`, came);
    const [sent, grouped, folded] = [filled(6), empty(6), filled(6)];
    await comm.group(() => {
      if (size > 1) {
        void comm.send({ send: sent, peer: right });
        void comm.recv({ recv: grouped, peer: left });
      }
      void comm.allReduce({ send: folded, op: "max" });
    });
    await keep(`group messages ${dtype}`, grouped);
    await keep(`group fold ${dtype}`, folded);
    const captured = filled(33);
    const graph = await comm.capture(() => {
      void comm.allReduce({ send: captured, op: "min" });
      void comm.broadcast({ recv: captured, root });
    });
    for (let round = 0; round < 2; round++) {
      captured.copyFrom(contents(dtype, 33, rank, seed++, exact));
      await graph.replay();
      await keep(`replay ${round} ${dtype}`, captured);
    }
    const [passed, arrived, neighbours] = [filled(12), empty(12), empty(12)];
    const messages = await comm.capture(() => {
      void comm.sendRecv({ send: passed, recv: arrived, to: right, from: left });
      void comm.group(() => {
        if (size === 1) return;
        void comm.send({ send: passed, peer: left });
        void comm.recv({ recv: neighbours, peer: right });
      });
    });
    for (let round = 0; round < 2; round++) {
      passed.copyFrom(contents(dtype, 12, rank, seed++, exact));
      await messages.replay();
      await keep(`replayed sendRecv ${round} ${dtype}`, arrived);
      await keep(`replayed group of messages ${round} ${dtype}`, neighbours);
    }
    if (!symmetric || !comm.capabilities.symmetricMemory) continue;
    const inWindow = filled(64, { symmetric: true });
    const out = comm.alloc(dtype, 64, { symmetric: true });
    await comm.allReduce({ send: inWindow, recv: out, op: "sum" });
    await keep(`symmetric allReduce ${dtype}`, out);
  }
  // Blocks that NCCL may register with a graph, and cut over many channels.
  const many = 1_000_003;
  const [whole, block] = [comm.alloc("float32", many), comm.alloc("float32", many)];
  const large = await comm.capture(() => {
    const [to, from] = [(rank + 1) % size, (rank + size - 1) % size];
    void comm.sendRecv({ send: whole, recv: block, to, from });
    void comm.allReduce({ send: block, op: "max" });
  });
  for (let round = 0; round < 2; round++) {
    whole.copyFrom(contents("float32", many, rank, seed++, exact));
    await large.replay();
    await keep(`replayed large message ${round}`, block);
  }
  // Messages of two ranks; the others record nothing.
  const single = await comm.capture(() => {
    if (rank === 0) void comm.send({ send: whole, peer: size - 1 });
    if (rank === size - 1) void comm.recv({ recv: block, peer: 0 });
  });
  for (let round = 0; round < 2; round++) {
    whole.copyFrom(contents("float32", many, rank, seed++, exact));
    await single.replay();
    await keep(`replayed message from the first rank to the last ${round}`, block);
  }
  const halves = await comm.split({ color: rank % 2 });
  const pair = halves.alloc("float32", 50);
  pair.copyFrom(contents("float32", 50, rank, seed++, exact));
  await halves.allReduce({ send: pair, op: "sum" });
  await keep("split", pair);
  await halves.close();
  const turned = await comm.split({ color: 0, key: -rank });
  const ranks = turned.alloc("int32", size);
  const own = turned.alloc("int32", 1).fill(turned.rank * 100 + rank);
  await turned.allGather({ send: own, recv: ranks });
  await keep("split turned round", ranks);
  await turned.close();
  await comm.barrier();
  return found;
}
