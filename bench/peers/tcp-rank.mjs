// One rank of twinccl over TCP, beside bench/peers/mpi-all-reduce.c and with its arguments and output:
// twinccl launch -n RANKS bench/peers/tcp-rank.mjs allreduce|alltoallv BYTES CALLS prints one line of milliseconds, one number a
// call: from the barrier before it until the slowest rank is done. `memory BYTES CALLS` makes all-reduces, and prints the most
// bytes that a process of them had resident.
import { connect } from "twinccl";
import { tcp } from "twinccl/tcp";
import { share } from "./subjects.mjs";

const [collective, bytes, calls] = [
  process.argv[2],
  Number(process.argv[3]),
  Number(process.argv[4]),
];
const comm = await connect({ backend: tcp() });
const { rank, size } = comm;

function allReduce() {
  const send = comm.alloc("float32", bytes / 4).fill(rank + 1);
  const recv = comm.alloc("float32", bytes / 4);
  const sum = (size * (size + 1)) / 2;
  return {
    call: () => comm.allReduce({ send, recv, op: "sum" }),
    isRight: async () => (await recv.toHost()).every((value) => value === sum),
  };
}

function allToAllv() {
  const counts = (of) => Array.from({ length: size }, (_, peer) => of(peer) / 4);
  const sendCounts = counts((peer) => share(bytes, rank, peer, size));
  const recvCounts = counts((peer) => share(bytes, peer, rank, size));
  const total = (list) => list.reduce((sum, count) => sum + count, 0);
  const send = comm.alloc("float32", total(sendCounts)).fill(rank + 1);
  const recv = comm.alloc("float32", total(recvCounts));
  return {
    call: () => comm.allToAllv({ send, recv, sendCounts, recvCounts }),
    isRight: async () => {
      const found = await recv.toHost();
      let end = 0;
      return recvCounts.every((count, from) => {
        const block = found.subarray(end, end + count);
        end += count;
        return block.every((value) => value === from + 1);
      });
    },
  };
}

const most = comm.alloc("float64", 1);

/** The largest of the ranks' values. */
async function mostOf(value) {
  await comm.allReduce({ send: most.fill(value), op: "max" });
  return (await most.toHost())[0];
}

const { call, isRight } = collective === "alltoallv" ? allToAllv() : allReduce();
const times = [];
for (let at = 0; at < calls; at++) {
  await comm.barrier();
  const began = performance.now();
  await call();
  times.push(await mostOf(performance.now() - began));
}
const resident = await mostOf(process.resourceUsage().maxRSS * 1024);
if (!(await isRight())) throw new Error(`rank ${rank}: ${collective} of ${bytes} bytes is wrong`);
const figures = collective === "memory" ? [resident] : times;
if (rank === 0) process.stdout.write(`${figures.map((each) => each.toFixed(6)).join(" ")}\n`);
await comm.close();
