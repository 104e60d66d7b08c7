/**
 * Reads the lines that NCCL logs about its plans (NCCL_DEBUG=INFO; subsystems INIT, GRAPH and TUNING).
 *
 * Rank 0 logs a line for each collective call; every rank logs its own rings and trees.
 */
import { closeSync, openSync, readSync, rmSync } from "node:fs";
import { join } from "node:path";
import { privateFolder, withFiles } from "./private-files.ts";
import type { Variables } from "./start-variables.ts";

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

/**
 * The plan of a line; `undefined` for lines about anything else.
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
 * The communicator that lines tell about; `undefined` when they do not.
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

/** NCCL writes each line at once, so that whatever a finished call logged is there. */
export class PlanLogFile {
  readonly variables: Variables;
  readonly #folder: string;
  readonly #file: number;
  readonly #chunk = Buffer.alloc(65_536);
  #position = 0;
  /** The beginning of an incomplete line. */
  #rest = "";
  readonly #remove = (): void => rmSync(this.#folder, { recursive: true, force: true });

  constructor() {
    this.#folder = privateFolder("twinccl-plan-");
    const path = join(this.#folder, "nccl.log");
    // NCCL opens it again and empties it.
    this.#file = withFiles(`${path} cannot be opened`, () => openSync(path, "w+", 0o600));
    this.variables = {
      NCCL_DEBUG: "INFO",
      NCCL_DEBUG_SUBSYS: "INIT,GRAPH,TUNING",
      // A per cent sign would begin one of NCCL's place-holders.
      NCCL_DEBUG_FILE: path.replaceAll("%", "%%"),
    };
    process.once("exit", this.#remove);
  }

  /** The whole lines that came since the last look. */
  newLines(): string[] {
    for (;;) {
      const count = readSync(this.#file, this.#chunk, 0, this.#chunk.length, this.#position);
      if (count === 0) break;
      this.#position += count;
      this.#rest += this.#chunk.toString("latin1", 0, count);
    }
    const lines = this.#rest.split("\n");
    this.#rest = lines.pop() ?? "";
    return lines;
  }

  /** Removes it; what NCCL still writes goes nowhere. */
  close(): void {
    process.removeListener("exit", this.#remove);
    closeSync(this.#file);
    this.#remove();
  }
}

/** A plan, and the communicator of its call. */
export interface RecordedPlan extends TakenPlan {
  /** Name of the communicator. */
  readonly comm: string;
}

/** Plans kept for a caller that does not take them; the oldest go first. */
const mostKept = 2 ** 20;

/** The logged plans so far, in the order of the calls. Empty without `readPlan`, and where rank 0 is elsewhere. */
export class PlanRecord {
  /** Communicators by name, the latest of each. */
  readonly communicators = new Map<string, TakenCommunicator>();
  #plans: RecordedPlan[] = [];

  /** The plans since the last `take`; afterwards there are none. */
  take(): readonly RecordedPlan[] {
    const taken = this.#plans;
    this.#plans = [];
    return taken;
  }

  /**
   * Reads what NCCL logged since the last look, which was about this communicator.
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
    if (this.#plans.length > mostKept) this.#plans = this.#plans.slice(-mostKept);
  }
}
