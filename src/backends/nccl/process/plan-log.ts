/**
 * Reads the lines that NCCL logs about its plans (NCCL_DEBUG=INFO; subsystems INIT, GRAPH and TUNING).
 *
 * Rank 0 logs a line for each collective call; every rank logs its own rings and trees.
 */

/** The plan that NCCL took for one call. */
export interface TakenPlan {
  readonly collective: "allReduce" | "reduceScatter" | "allGather" | "reduce" | "broadcast";
  /** As NCCL logs them: of a reduce-scatter and an all-gather those of one rank. */
  readonly bytes: number;
  /** `Ring`, `Tree` or `Symmetric`; others by NCCL's name, such as `NVLS`. */
  readonly algorithm: string;
  /** `LL`, `LL128` or `Simple`; of a symmetric kernel `LL` or `LD`, or its own name. */
  readonly protocol: string;
  /** Channels used; blocks of a symmetric kernel. */
  readonly channels: number;
}

/** NCCL's log lines of a new communicator. */
export interface TakenCommunicator {
  /** Channels of collectives. */
  readonly channels: number;
  /** By channel, from rank 0 on. */
  readonly rings: readonly (readonly number[])[];
  /** By channel, from the leaf to the root; channels with ranks that do not all log here have none. */
  readonly chains: readonly (readonly number[])[];
}

const collectives: ReadonlyMap<string, TakenPlan["collective"]> = new Map([
  ["AllReduce", "allReduce"],
  ["ReduceScatter", "reduceScatter"],
  ["AllGather", "allGather"],
  ["Reduce", "reduce"],
  ["Broadcast", "broadcast"],
]);

const names: ReadonlyMap<string, string> = new Map([
  ["RING", "Ring"],
  ["TREE", "Tree"],
  ["SIMPLE", "Simple"],
]);

const onChannels =
  /NCCL INFO (\w+): (\d+) Bytes -> Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}/;
const symmetric = /NCCL INFO (\w+) \[Symmetric\]: (\d+) Bytes -> Kernel (\w+) nchannels (\d+)/;

/** The plan of a line; `undefined` for lines about anything else. */
export function planOfLine(line: string): TakenPlan | undefined {
  const [, name = "", bytes, algorithm = "", protocol = "", low, high] =
    onChannels.exec(line) ?? [];
  const collective = collectives.get(name);
  if (collective !== undefined) {
    return {
      collective,
      bytes: Number(bytes),
      algorithm: names.get(algorithm) ?? algorithm,
      protocol: names.get(protocol) ?? protocol,
      channels: Number(high) - Number(low) + 1,
    };
  }
  const [, what = "", size, kernel = "", blocks] = symmetric.exec(line) ?? [];
  const folded = collectives.get(what);
  if (folded === undefined) return undefined;
  return {
    collective: folded,
    bytes: Number(size),
    algorithm: "Symmetric",
    protocol: /_(?:AGx)?LL(?:_|$)/.test(kernel) ? "LL" : /LD/.test(kernel) ? "LD" : kernel,
    channels: Number(blocks),
  };
}

/** The communicator that lines tell about; `undefined` when they do not. */
export function communicatorOfLines(lines: readonly string[]): TakenCommunicator | undefined {
  const rings: number[][] = [];
  const links: { readonly child: number; readonly rank: number; readonly up: number }[][] = [];
  let channels: number | undefined;
  for (const line of lines) {
    const [, count] = /NCCL INFO (\d+) coll channels/.exec(line) ?? [];
    if (count !== undefined) channels = Number(count);
    const [, channel, ring] = /NCCL INFO Channel (\d+)\/\d+ : +([\d ]+?) *$/.exec(line) ?? [];
    if (ring !== undefined) rings[Number(channel)] = ring.split(/ +/).map(Number);
    if (!/NCCL INFO Trees /.test(line)) continue;
    for (const [, at, child, rank, up] of line.matchAll(tree)) {
      const own = { child: Number(child), rank: Number(rank), up: Number(up) };
      links[Number(at)] = [...(links[Number(at)] ?? []), own];
    }
  }
  if (channels === undefined) return undefined;
  return { channels, rings, chains: links.map(chainOf) };
}

const tree = /\[(\d+)\] (-?\d+)\/-?\d+\/-?\d+->(\d+)->(-?\d+)/g;

/** Walks from the rank without a child up to the root; empty when a rank is missing. */
function chainOf(
  links: readonly { readonly child: number; readonly rank: number; readonly up: number }[],
): number[] {
  const chain: number[] = [];
  let link = links.find(({ child }) => child === -1);
  while (link !== undefined && chain.length < links.length) {
    chain.push(link.rank);
    const { up } = link;
    if (up === -1) return chain;
    link = links.find(({ rank }) => rank === up);
  }
  return [];
}
