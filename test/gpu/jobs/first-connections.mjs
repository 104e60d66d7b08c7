// What connects ranks for the first time in a generation of the job, without rank 1: each in a generation of its own, the last one
// without rank 1's process. Prints `result {…}`.
import { connect } from "twinccl";
import { nccl } from "twinccl/nccl";

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const timeoutMs = 400;
const late = 1;

const floats = (comm, length, options) => comm.alloc("float32", length, options).fill(1);
const sum = (comm, send, more = { timeoutMs }) => comm.allReduce({ send, op: "sum", ...more });
const toAll = (comm, more = { timeoutMs }) => {
  const [send, recv] = [floats(comm, comm.size), floats(comm, comm.size)];
  return comm.allToAll({ send, recv, ...more });
};

/** The first act of all ranks, and the act without the late one; `who` is left out where all ranks take part. */
const cases = {
  allReduce: { act: (comm) => sum(comm, floats(comm, 8)) },
  largeAllReduce: {
    before: (comm) => sum(comm, floats(comm, 8)),
    act: (comm) => sum(comm, floats(comm, 2 ** 24)),
  },
  send: {
    before: (comm) => sum(comm, floats(comm, 8)),
    who: 0,
    act: (comm) => comm.send({ send: floats(comm, 8), peer: late, timeoutMs }),
  },
  answer: {
    before: (comm) => {
      if (comm.rank === 0) return comm.send({ send: floats(comm, 8), peer: late });
      return comm.rank === late ? comm.recv({ recv: floats(comm, 8), peer: 0 }) : undefined;
    },
    who: 0,
    act: (comm) => comm.recv({ recv: floats(comm, 8), peer: late, timeoutMs }),
  },
  ring: {
    // Ranks that are not the late one's neighbours wait for those that are.
    act: (comm) => {
      const [next, last] = [(comm.rank + 1) % comm.size, (comm.rank + comm.size - 1) % comm.size];
      return comm.group(() => {
        comm.send({ send: floats(comm, 8), peer: next, timeoutMs });
        comm.recv({ recv: floats(comm, 8), peer: last, timeoutMs });
      });
    },
  },
  allToAll: { act: toAll },
  symmetric: { act: (comm) => sum(comm, floats(comm, 8, { symmetric: true })) },
  moreSymmetric: {
    before: (comm) => sum(comm, floats(comm, 8, { symmetric: true })),
    act: (comm) => sum(comm, floats(comm, 8, { symmetric: true })),
  },
  split: { act: (comm) => comm.split({ color: 0, timeoutMs }) },
  partAllReduce: {
    before: (comm) => comm.split({ color: 0 }),
    act: (_, part) => sum(part, floats(part, 8)),
  },
  partAllToAll: { before: (comm) => comm.split({ color: 0 }), act: (_, part) => toAll(part) },
};

let comm = await connect({ backend: nccl(), timeoutMs: 60_000 });
const errors = {};
const tellOf = async (name, op) => {
  const began = performance.now();
  const error = await Promise.resolve(op).then(
    () => ({ code: "fine" }),
    (caught) => caught,
  );
  const { code, ranks } = error;
  errors[name] = { code, ranks, tookMs: performance.now() - began };
};
for (const [name, { before, act, who }] of Object.entries(cases)) {
  const prepared = await before?.(comm);
  if (comm.rank === late) await pause(1200);
  else if (who === undefined || who === comm.rank) await tellOf(name, act(comm, prepared));
  comm = await comm.rebuild();
}
// A recording's first call connects too.
const data = floats(comm, comm.size);
const recording = () =>
  comm.capture(() => void comm.allToAll({ send: data, recv: floats(comm, comm.size) }));
if (comm.rank !== late) await pause(300);
await (await recording()).replay();
comm = await comm.rebuild();
if (comm.rank === late) {
  await pause(200);
  process.kill(process.pid, "SIGKILL");
}
const lost = tellOf("killed", toAll(comm, {}));
await lost;
comm = await comm.rebuild({ without: [late] });
await sum(comm, floats(comm, 8));
const result = { rank: comm.initialRanks[comm.rank], errors, size: comm.size };
await comm.close();
process.stdout.write(`result ${JSON.stringify(result)}\n`);
