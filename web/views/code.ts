/** The call as a program makes it: a module that runs as it stands. */
import { specifications } from "twinccl";
import { takesArgument } from "../../src/api/collectives/call-layout.ts";
import { blockCounts, isExchange, moves, traits } from "../data/calls.ts";
import { isSymmetric, planOptions } from "../plans.ts";
import type { State } from "../state.ts";

/** Lengths of `send` and `recv`, and the arguments beside operator and root, as expressions. */
interface Row {
  readonly send: string;
  readonly recv: string;
  readonly args: string;
}

/** The call of a collective: as its specification has the blocks at the root, rank 0 here, and at another rank. */
function rowOf(state: State): Row {
  const { collective } = state;
  const { inBlocks, outBlocks } = specifications[collective];
  const isUneven = blockCounts(state) !== undefined;
  const [sendCounts, recvCounts] = isExchange(state)
    ? ["sendCounts", "recvCounts"]
    : ["counts", "counts"];
  const send = [inBlocks(2, 0, 0), inBlocks(2, 1, 0)] as const;
  const recv = [outBlocks(2, 0, 0), outBlocks(2, 1, 0)] as const;
  const given = (name: "sendCounts" | "recvCounts", counts: string): string[] => {
    if (!isUneven || !takesArgument(collective, name)) return [];
    return [name === counts ? name : `${name}: ${counts}`];
  };
  const everywhere = [...(send[1] > 0 ? ["send"] : []), ...(recv[1] > 0 ? ["recv"] : [])];
  const atRoot = [
    ...(send[1] === 0 ? ["...(isRoot && { send })"] : []),
    ...(recv[1] === 0 ? ["...(isRoot && { recv })"] : []),
  ];
  const counts = [...given("sendCounts", sendCounts), ...given("recvCounts", recvCounts)];
  return {
    send: lengthText(send, isUneven ? sendCounts : undefined),
    recv: lengthText(recv, isUneven ? recvCounts : undefined),
    args: [...everywhere, ...atRoot, ...counts].join(", "),
  };
}

/** The length of a buffer as an expression, from its blocks at the root and elsewhere among two ranks. */
function lengthText([atRoot, elsewhere]: readonly [number, number], counts?: string): string {
  const single = counts === undefined ? "count" : `${counts}[comm.rank]`;
  const all = counts === undefined ? "count * comm.size" : `${counts}.reduce((a, b) => a + b)`;
  const length = atRoot === 1 ? single : all;
  return atRoot === elsewhere ? length : `isRoot ? ${length} : 0`;
}

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
  if (!moves(state)) return [`await comm.${collective}();`];
  const { send, recv, args } = rowOf(state);
  const { reduces, rooted } = traits(state);
  const memory = isSymmetric(state) ? ", { symmetric: true }" : "";
  const operator = op === "preMul" ? `{ preMul: ${scalar} }` : `"${op}"`;
  const all = [args, ...(reduces ? [`op: ${operator}`] : []), ...(rooted ? [`root: ${root}`] : [])];
  return [
    ...(rooted ? [`const isRoot = comm.rank === ${root};`] : []),
    ...(isExchange(state)
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
