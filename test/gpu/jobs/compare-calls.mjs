// Ranks that compare their calls: rank 1 makes a wrong one, all get the error and go on; prints `result {…}`.
//   node compare-calls.mjs always|once
import { connect } from "twinccl";
import { backend } from "./backend.mjs";

const compareCalls = process.argv[2];
const comm = await connect({
  backend: backend({ compareCalls, timeoutMs: 20_000 }),
  timeoutMs: 60_000,
});
const { rank } = comm;
const isWrong = rank === 1;
const outcomes = [];
const tell = (operation) =>
  operation.then(
    () => outcomes.push("fine"),
    ({ name, code, field, ranks }) => outcomes.push({ name, code, field, ranks }),
  );
const reduce = (count, op = "sum") =>
  comm.allReduce({ send: comm.alloc("int32", count).fill(rank + 1), op });

await tell(reduce(isWrong ? 63 : 64));
await tell(reduce(64));
await tell(isWrong ? comm.barrier() : reduce(64, "max"));
await tell(
  comm.allToAllv({
    send: comm.alloc("int32", comm.size),
    sendCounts: new Array(comm.size).fill(1),
    recv: comm.alloc("int32", 2 * comm.size),
    recvCounts: new Array(comm.size).fill(isWrong ? 2 : 1),
  }),
);
const [one, two] = [1, 2].map(() => comm.alloc("float32", 64, { symmetric: true }).fill(rank));
await tell(comm.allReduce({ send: one, op: "sum" }));
await tell(comm.allReduce({ send: compareCalls === "always" && isWrong ? one : two, op: "sum" }));
const graph = await comm.capture(() => void comm.allReduce({ send: one, op: "max" }));
await tell(graph.replay());
const turned = await comm.split({ color: 0, key: -rank });
await tell(
  turned.allReduce({
    send: turned.alloc("int8", turned.rank === comm.size - 1 ? 2 : 1),
    op: "sum",
  }),
);
await tell(turned.barrier());
const sum = comm.alloc("int32", 1).fill(rank + 1);
await comm.allReduce({ send: sum, op: "sum" });
const [found] = await sum.toHost();
await turned.close();
await comm.close();
process.stdout.write(`result ${JSON.stringify({ rank, outcomes, found })}\n`);
