// First messages of ranks 0 and 1, made in different orders on each, and calls that not all ranks make alike; each in a
// generation of the job of its own. Prints `result {…}`.
import { connect } from "twinccl";
import { nccl } from "twinccl/nccl";

const timeoutMs = 2000;

/** Rank 0 makes both ends at once, rank 1 in such an order; what arrived, or the error's code. */
const exchange = (order) => async (comm) => {
  if (comm.rank > 1) return undefined;
  const peer = 1 - comm.rank;
  const send = comm.alloc("int32", 4096).fill(10 + comm.rank);
  const recv = comm.alloc("int32", 4096);
  const ends = {
    send: () => comm.send({ send, peer, timeoutMs }),
    recv: () => comm.recv({ recv, peer, timeoutMs }),
  };
  if (comm.rank === 0) await comm.sendRecv({ send, recv, to: peer, from: peer, timeoutMs });
  else for (const end of order) await ends[end]();
  return Array.from(await recv.toHost()).every((value) => value === 10 + peer);
};

const outcomeText = (call) => async (comm) =>
  call(comm).then(
    () => "fine",
    ({ code, message }) => `${code} ${/: (.*)$/m.exec(message)?.[1]}`,
  );

const cases = {
  receivesFirst: exchange(["recv", "send"]),
  sendsFirst: exchange(["send", "recv"]),
  counts: outcomeText((comm) => {
    const ones = Array.from({ length: comm.size }, () => 1);
    const known = comm.rank === 0 ? { recvCounts: ones } : {};
    const send = comm.alloc("int32", comm.size);
    return comm.allToAllv({ send, sendCounts: ones, ...known, timeoutMs: 600 });
  }),
  symmetric: outcomeText((comm) => {
    const send = comm.alloc("int32", 8, { symmetric: comm.rank === 0 });
    return comm.allReduce({ send, op: "sum", timeoutMs: 600 });
  }),
};

let comm = await connect({ backend: nccl(), timeoutMs: 60_000 });
const result = { rank: comm.rank };
for (const [name, act] of Object.entries(cases)) {
  result[name] = await act(comm).catch(({ message }) => message);
  comm = await comm.rebuild();
}
await comm.close();
process.stdout.write(`result ${JSON.stringify(result)}\n`);
