// One scenario of a fault on three ranks, by its name; each rank that lives prints `result {…}`.
//   node faults.mjs leaves-early
import { connect } from "twinccl";
import { tcp } from "twinccl/tcp";

const [name, option] = process.argv.slice(2);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const block = (ms) => {
  const until = performance.now() + ms;
  while (performance.now() < until);
};
const options = { compareCalls: name === "differs" ? option : "once" };
let comm = await connect({ backend: tcp(options), timeoutMs: 60_000 });
const { rank } = comm;
const result = { rank };

/** The outcome of a call: `fine`, or its error; and its time. */
const outcome = async (operation) => {
  const began = performance.now();
  const told = await Promise.resolve(operation).then(
    () => ({ code: "fine" }),
    ({ code, ranks, message, collective }) => ({ code, ranks, message, collective }),
  );
  return { ...told, tookMs: performance.now() - began };
};
const floats = (length, value = 1) => comm.alloc("float32", length).fill(value);
const sum = async (length = 8) => {
  const send = floats(length);
  await comm.allReduce({ send, op: "sum" });
  return (await send.toHost())[length - 1];
};
const say = (text) => process.stdout.write(`${text}\n`);
const end = (more = {}) => say(`result ${JSON.stringify({ ...result, ...more })}`);

const scenarios = {
  // Rank 1 has done its part of a gather, and ends long before rank 2 does its part.
  async "leaves-early"() {
    const gather = (recv) => comm.gather({ send: floats(1, rank + 1), recv, root: 0 });
    // Compared once: the next one waits for data alone.
    await gather(rank === 0 ? floats(3, 0) : undefined);
    if (rank === 2) await pause(4000);
    const recv = rank === 0 ? floats(3, 0) : undefined;
    result.gather = await outcome(gather(recv));
    if (recv !== undefined) result.found = [...(await recv.toHost())];
    await comm.close();
    end();
  },
  // Rank 1 has closed; the others send each other messages on the same communicator later.
  async "messages-of-the-others"() {
    await sum();
    if (rank === 1) return comm.close();
    await pause(rank === 2 ? 3500 : 200);
    const buffer = floats(4, rank);
    const message =
      rank === 0 ? comm.recv({ recv: buffer, peer: 2 }) : comm.send({ send: buffer, peer: 0 });
    result.message = await outcome(message);
    result.found = [...(await buffer.toHost())];
    end();
    await comm.close();
  },
  // The root of a broadcast exits as soon as its call is done: with the first message of its connections.
  async "exits-after-broadcast"() {
    const recv = floats(Number(option), rank);
    if (rank === 1) await pause(1500);
    result.broadcast = await outcome(comm.broadcast({ recv, root: 2 }));
    const found = await recv.toHost();
    result.wrong = found.filter((value) => value !== 2).length;
    await new Promise((resolve) =>
      process.stdout.write(`result ${JSON.stringify(result)}\n`, resolve),
    );
    process.exit(0);
  },
  // Rank 2 exits as soon as it has sent, and rank 1 receives later.
  async "exits-after-send"() {
    const data = floats(Number(option), rank);
    if (rank !== 2) await pause(rank === 1 ? 500 : 1500);
    if (rank === 2) await comm.send({ send: data, peer: 1 });
    if (rank === 1) result.recv = await outcome(comm.recv({ recv: data, peer: 2 }));
    const found = await data.toHost();
    result.wrong = found.filter((value) => value !== 2).length;
    await new Promise((resolve) =>
      process.stdout.write(`result ${JSON.stringify(result)}\n`, resolve),
    );
    process.exit(0);
  },
  // Rank 2 exits as soon as it has sent all messages, with the report on the first one unread; rank 1 computes before it receives the
  // others.
  async "exits-with-unread-reports"() {
    const all = [1, 2, 3].map((value) => floats(Number(option), rank === 2 ? value : 0));
    for (const [at, data] of all.entries()) {
      if (rank === 2) await comm.send({ send: data, peer: 1 });
      if (rank === 1) result.recv = await outcome(comm.recv({ recv: data, peer: 2 }));
      if (rank === 1 && at === 0) block(800);
    }
    if (rank === 2) block(400);
    if (rank === 0) await pause(1500);
    const found = await Promise.all(all.map((each) => each.toHost()));
    result.wrong = found.filter((each, at) => each.some((value) => value !== at + 1)).length;
    await new Promise((resolve) =>
      process.stdout.write(`result ${JSON.stringify(result)}\n`, resolve),
    );
    process.exit(0);
  },
  // The root of a broadcast exits after its calls while the process of rank 0, which passes them on to rank 1, computes.
  async "exits-before-they-are-passed-on"() {
    await comm.broadcast({ recv: floats(1, rank), root: 2 });
    const buffers = [1, 2, 3].map(() => floats(Number(option), rank));
    const calls = buffers.map((recv) => comm.broadcast({ recv, root: 2 }));
    if (rank === 0) block(700);
    result.broadcast = await outcome(Promise.all(calls));
    const found = await Promise.all(buffers.map((each) => each.toHost()));
    result.wrong = found.filter((each) => each.some((value) => value !== 2)).length;
    await new Promise((resolve) =>
      process.stdout.write(`result ${JSON.stringify(result)}\n`, resolve),
    );
    process.exit(0);
  },
  // The root of a broadcast exits after its call; rank 0 passes it on to rank 1, which makes the call later.
  async "exits-before-a-later-call"() {
    await comm.broadcast({ recv: floats(1, rank), root: 2 });
    const recv = floats(Number(option), rank);
    if (rank === 1) await pause(1000);
    result.broadcast = await outcome(comm.broadcast({ recv, root: 2 }));
    result.wrong = (await recv.toHost()).filter((value) => value !== 2).length;
    await new Promise((resolve) =>
      process.stdout.write(`result ${JSON.stringify(result)}\n`, resolve),
    );
    process.exit(0);
  },
  // Rank 1 makes another call than the others.
  async differs() {
    await sum();
    const length = rank === 1 ? 12 : 8;
    const op = comm.allReduce({ send: floats(length), op: "sum", timeoutMs: 3000 });
    result.differs = await outcome(op);
    comm = await comm.rebuild();
    result.sum = await sum();
    await comm.close();
    end();
  },
  // Rank 1 throws what its program does not catch.
  async throws() {
    await sum();
    if (rank === 1) throw new Error("as planned");
    result.lost = await outcome(comm.allReduce({ send: floats(8), op: "sum" }));
    comm = await comm.rebuild({ without: [1] });
    result.sum = await sum();
    await comm.close();
    end();
  },
  // Rank 1 is stopped while the others have calls with a deadline; it continues when the test has it.
  async stops() {
    await sum();
    if (rank === 1) {
      say(`pid ${process.pid} of rank 1`);
      process.kill(process.pid, "SIGSTOP");
    } else await pause(500);
    const held = floats(1000);
    result.stopped = await outcome(comm.allReduce({ send: held, op: "sum", timeoutMs: 1500 }));
    say(`tried ${rank}`);
    if (rank !== 1) await pause(500);
    comm = await comm.rebuild();
    result.sum = await sum();
    await comm.close();
    end();
  },
  // Calls of all kinds without end, until a signal ends the job or the store.
  async endless() {
    await sum();
    say(`pid ${process.pid} of rank ${rank}`);
    let calls = 0;
    const failed = (async () => {
      for (;;) {
        await comm.allReduce({ send: floats(100_000), op: "sum", timeoutMs: 10_000 });
        calls++;
        if (option !== undefined && calls % 10 === 0) await pause(1);
        if (option !== undefined && performance.now() > Number(option)) return;
      }
    })();
    result.endless = await outcome(failed);
    result.calls = calls;
    end();
    await comm.close().catch(() => undefined);
  },
};
await scenarios[name]();
