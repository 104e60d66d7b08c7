/** The call as a program makes it: a module that runs as it stands. */
import type { SpecifiedCollective } from "twinccl";
import { blockCounts, moves, traits } from "../data/calls.ts";
import { isSymmetric, planOptions } from "../plans.ts";
import type { State } from "../state.ts";

/** Lengths of `send` and `recv`, and the arguments beside operator and root, as expressions. */
interface Row {
  readonly send: string;
  readonly recv: string;
  readonly args: string;
}

const atRoot = (buffer: string): string => `...(isRoot && { ${buffer} })`;
const row = (send: string, recv: string, args = "send, recv"): Row => ({ send, recv, args });
const sum = (counts: string): string => `${counts}.reduce((a, b) => a + b)`;

const rows: { readonly [C in SpecifiedCollective]: Row } = {
  allReduce: row("count", "count"),
  reduce: row("count", "isRoot ? count : 0", `send, ${atRoot("recv")}`),
  broadcast: row("isRoot ? count : 0", "count", `recv, ${atRoot("send")}`),
  allGather: row("count", "count * comm.size"),
  allGatherv: row("counts[comm.rank]", sum("counts"), "send, recv, recvCounts: counts"),
  reduceScatter: row("count * comm.size", "count"),
  reduceScatterv: row(sum("counts"), "counts[comm.rank]", "send, recv, sendCounts: counts"),
  allToAll: row("count * comm.size", "count * comm.size"),
  allToAllv: row(sum("sendCounts"), sum("recvCounts"), "send, recv, sendCounts, recvCounts"),
  gather: row("count", "isRoot ? count * comm.size : 0", `send, ${atRoot("recv")}`),
  scatter: row("isRoot ? count * comm.size : 0", "count", `recv, ${atRoot("send")}`),
  barrier: row("0", "0", ""),
};

/** The lines of the module. */
export function codeOf(state: State): string {
  const { ranks, latency, bandwidth } = state;
  const link = { latencyNs: latency, gigabytesPerSecond: bandwidth };
  return [
    'import { createWorld } from "twinccl";',
    'import { sim } from "twinccl/sim";',
    "",
    `const link = ${literal(link)};`,
    `const backend = sim(${literal(planOptions(state)).replace(/ }$/, ", link }")});`,
    `const world = await createWorld({ backend, size: ${ranks} });`,
    ...countLines(state),
    "await world.run(async (comm) => {",
    ...bodyLines(state).map((line) => `  ${line}`),
    "});",
    "await world.close();",
  ].join("\n");
}

function countLines(state: State): string[] {
  const counts = blockCounts(state);
  if (!moves(state)) return [];
  if (counts === undefined) return [`const count = ${state.count};`];
  return [`const counts = ${JSON.stringify(counts.length === 1 ? counts[0] : counts)};`];
}

function bodyLines(state: State): string[] {
  const { collective, dtype, op, scalar, root } = state;
  const { send, recv, args } = rows[collective];
  if (!moves(state)) return [`await comm.${collective}();`];
  const { reduces, rooted } = traits(state);
  const memory = isSymmetric(state) ? ", { symmetric: true }" : "";
  const operator = op === "preMul" ? `{ preMul: ${scalar} }` : `"${op}"`;
  const all = [args, ...(reduces ? [`op: ${operator}`] : []), ...(rooted ? [`root: ${root}`] : [])];
  return [
    ...(rooted ? [`const isRoot = comm.rank === ${root};`] : []),
    ...(collective === "allToAllv"
      ? [
          "const sendCounts = counts[comm.rank];",
          "const recvCounts = counts.map((row) => row[comm.rank]);",
        ]
      : []),
    `const send = comm.alloc("${dtype}", ${send}${memory});`,
    `const recv = comm.alloc("${dtype}", ${recv}${memory});`,
    `await comm.${collective}({ ${all.join(", ")} });`,
  ];
}

function literal(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const entries = Object.entries(value).filter(([, each]) => each !== undefined);
  if (entries.length === 0) return "{}";
  return `{ ${entries.map(([key, each]) => `${key}: ${literal(each)}`).join(", ")} }`;
}
