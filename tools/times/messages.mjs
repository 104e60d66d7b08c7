// Messages measured on four GPUs, and the virtual time of the same programs.
import { readFileSync } from "node:fs";
import { createWorld } from "twinccl";
import { sim } from "twinccl/sim";

/** The files of measurements, by machine. */
export const messagesFiles = { H100: "messages-h100x4.json", H200: "messages-h200x4.json" };

const next = ({ rank, size }) => (rank + 1) % size;
const last = ({ rank, size }) => (rank + size - 1) % size;

/** A message from one rank to another. */
const oneWay = (from, to) => (comm, send, recv) => {
  if (comm.rank === from) return comm.send({ send, peer: to });
  return comm.rank === to ? comm.recv({ recv, peer: from }) : undefined;
};

/** A rank's call by the name of the measurement. */
const programs = {
  "sendRecv to the next rank": (comm, send, recv) =>
    comm.sendRecv({ send, recv, to: next(comm), from: last(comm) }),
  "one way, 0 to 1": oneWay(0, 1),
  "one way, 0 to 2": oneWay(0, 2),
  "one way, 0 to 1 and 2 to 3": (comm, send, recv) => {
    const { rank } = comm;
    return rank % 2 === 0
      ? comm.send({ send, peer: rank + 1 })
      : comm.recv({ recv, peer: rank - 1 });
  },
  "group, 0 and 1, 2 and 3 both ways": (comm, send, recv) =>
    comm.group(() => {
      const peer = comm.rank ^ 1;
      void comm.send({ send, peer });
      void comm.recv({ recv, peer });
    }),
  "group, to the next rank but for the last": (comm, send, recv) =>
    comm.group(() => {
      const { rank, size } = comm;
      if (rank + 1 < size) void comm.send({ send, peer: rank + 1 });
      if (rank > 0) void comm.recv({ recv, peer: rank - 1 });
    }),
  "group, 0 to all others": (comm, send, recv) =>
    comm.group(() => {
      const { rank, size } = comm;
      if (rank > 0) void comm.recv({ recv, peer: 0 });
      else for (let peer = 1; peer < size; peer++) void comm.send({ send, peer });
    }),
  "gather to 0": (comm, send, _, all) =>
    comm.gather({ send, ...(comm.rank === 0 && { recv: all }), root: 0 }),
};

/** The measured messages of a file, each with its predicted time. */
export async function messageResiduals(file) {
  const url = new URL(`../../bench/results/${file}`, import.meta.url);
  const { runs } = JSON.parse(readFileSync(url, "utf8"));
  const found = [];
  for (const { ranks, rows } of runs) {
    const world = await createWorld({ backend: sim({ phantom: true }), size: ranks });
    const ends = await world.run((comm) => virtualTimes(comm, rows));
    rows.forEach(({ name, bytes, us }, at) => {
      const modelUs = Math.max(...ends.map((times) => times[at])) / 1000;
      found.push({ measurement: { name, ranks, bytes, us }, modelUs });
    });
    await world.close();
  }
  return found;
}

/** Calls back to back, as they were measured: ranks that wait for none pass the others by the way of a message. */
const calls = 100;

/** Nanoseconds of each row's call on one rank. */
async function virtualTimes(comm, rows) {
  const times = [];
  for (const { name, bytes } of rows) {
    const length = bytes / 4;
    const [send, recv] = [comm.alloc("float32", length), comm.alloc("float32", length)];
    const all = comm.alloc("float32", length * comm.size);
    await comm.barrier();
    const began = comm.stats().virtualNs;
    for (let call = 0; call < calls; call++) await programs[name](comm, send, recv, all);
    times.push((comm.stats().virtualNs - began) / calls);
    for (const buffer of [send, recv, all]) buffer.dispose();
  }
  return times;
}
