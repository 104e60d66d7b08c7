/**
 * Parses NCCL's log lines on its plans (NCCL_DEBUG=INFO; subsystems INIT, GRAPH and TUNING).
 *
 * Rank 0 logs a line for each collective call; every rank logs its own rings and trees.
 */
import { closeSync, openSync, readSync } from "node:fs";
import { PrivateFolder, withFiles } from "./private-files.ts";
import type { Variables } from "./start-variables.ts";

/** NCCL's plan of one call. */
export interface TakenPlan {
  readonly collective: "allReduce" | "reduceScatter" | "allGather" | "reduce" | "broadcast";
  /** Bytes as NCCL logs them; for a reduce-scatter and an all-gather, the bytes of one rank. */
  readonly bytes: number;
  /** `Ring`, `Tree` or `Symmetric`; others by NCCL's name, such as `NVLS`. */
  readonly algorithm: string;
  /** `LL`, `LL128` or `Simple`; for a symmetric kernel `LL`, `LD`, or the kernel's name. */
  readonly protocol: string;
  /** Number of channels; for a symmetric kernel, of blocks. */
  readonly channels: number;
}

/** NCCL's log lines of a new communicator. */
export interface TakenCommunicator {
  /** Number of channels of collectives. */
  readonly channels: number;
  /** Ring of each channel, from rank 0 on. */
  readonly rings: readonly (readonly number[])[];
  /** Chain of each channel, from leaf to root; empty unless all its ranks log here. */
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

/**
 * The plan in a line; `undefined` for other lines.
 *
 * @internal
 */
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

/**
 * The communicator described by lines; `undefined` if none is.
 *
 * @internal
 */
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

/** Follows the links from the leaf to the root; empty if a rank is missing. */
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

/** NCCL's log file. NCCL writes each line at once, so that the lines of finished calls are complete. */
export class PlanLogFile {
  readonly variables: Variables;
  readonly #folder = new PrivateFolder("twinccl-plan-");
  readonly #file: number;
  readonly #chunk = Buffer.alloc(65_536);
  #position = 0;
  /** Start of an incomplete line. */
  #rest = "";

  constructor() {
    const path = this.#folder.file("nccl.log");
    // NCCL reopens and truncates the file.
    this.#file = withFiles(`${path} cannot be opened`, () => openSync(path, "w+", 0o600));
    this.variables = {
      NCCL_DEBUG: "INFO",
      NCCL_DEBUG_SUBSYS: "INIT,GRAPH,TUNING",
      // NCCL interprets percent signs as placeholders.
      NCCL_DEBUG_FILE: path.replaceAll("%", "%%"),
    };
  }

  /** Complete lines since the last call. */
  newLines(): string[] {
    const read = (): number =>
      readSync(this.#file, this.#chunk, 0, this.#chunk.length, this.#position);
    for (;;) {
      const count = withFiles("NCCL's log cannot be read", read);
      if (count === 0) break;
      this.#position += count;
      this.#rest += this.#chunk.toString("latin1", 0, count);
    }
    const lines = this.#rest.split("\n");
    this.#rest = lines.pop() ?? "";
    return lines;
  }

  /** Removes the file; NCCL's later writes are lost. */
  close(): void {
    closeSync(this.#file);
    this.#folder.remove();
  }
}

/** A plan and the communicator of its call. */
export interface RecordedPlan extends TakenPlan {
  /** Name of the communicator. */
  readonly comm: string;
}

/** Longest list of plans that no caller has taken; older plans are dropped first. */
const maxKept = 2 ** 20;

/** Logged plans in the order of the calls. Empty without `readPlan`, and in processes without rank 0. */
export class PlanRecord {
  /** Latest communicator of each name. */
  readonly communicators = new Map<string, TakenCommunicator>();
  #plans: RecordedPlan[] = [];

  /** Returns and clears the plans since the last `take`. */
  take(): readonly RecordedPlan[] {
    const taken = this.#plans;
    this.#plans = [];
    return taken;
  }

  /**
   * Reads NCCL's new lines, which describe this communicator.
   *
   * @internal
   */
  read(log: PlanLogFile, comm: string): void {
    const lines = log.newLines();
    if (lines.length === 0) return;
    const communicator = communicatorOfLines(lines);
    if (communicator !== undefined) this.communicators.set(comm, communicator);
    for (const line of lines) {
      const plan = planOfLine(line);
      if (plan !== undefined) this.#plans.push({ ...plan, comm });
    }
    if (this.#plans.length > maxKept) this.#plans = this.#plans.slice(-maxKept);
  }
}
