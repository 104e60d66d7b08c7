/** A start of NCCL with pinned plans: its configuration, its variables, its graph file. */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { graphFile, graphTopology, type NcclPin, withRing } from "../../../algorithms/index.ts";
import type { ConfigFields } from "../sys/layouts.ts";
import { privateFolder, withFiles } from "./private-files.ts";
import { startWithVariables, type Variables, withVariables } from "./start-variables.ts";

/** The limits on channels, as fields of its configuration. */
export function pinnedConfig({ minChannels, maxChannels }: NcclPin): ConfigFields {
  return {
    ...(minChannels !== undefined && { minCTAs: minChannels }),
    ...(maxChannels !== undefined && { maxCTAs: maxChannels }),
  };
}

/**
 * Algorithm and protocol, as variables.
 *
 * Tree is set for all-reduces alone: since 2.24 a list that leaves a collective without an algorithm fails it.
 */
export function pinnedVariables({ algorithm, protocol }: NcclPin): Variables {
  return {
    ...(algorithm !== undefined && {
      NCCL_ALGO: algorithm === "Tree" ? "allreduce:tree" : algorithm,
    }),
    ...(protocol !== undefined && { NCCL_PROTO: protocol }),
  };
}

/** True when NCCL gets it by variables while it starts. */
export function needsVariables(pin: NcclPin): boolean {
  return pin.rings !== undefined || Object.keys(pinnedVariables(pin)).length > 0;
}

/** A private folder for graph files, while a communicator starts. */
class GraphFolder {
  readonly #path = privateFolder("twinccl-graph-");

  /** Has rank 0 write the graphs that NCCL finds. */
  get dumpVariables(): Variables {
    return { NCCL_GRAPH_DUMP_FILE: join(this.#path, "found.xml") };
  }

  /** The file of rank 0. */
  found(): string {
    const path = join(this.#path, "found.xml");
    return withFiles("NCCL wrote no graphs", () => readFileSync(path, "utf8"));
  }

  /** Has NCCL take these graphs. */
  takeVariables(xml: string): Variables {
    const path = join(this.#path, "wanted.xml");
    withFiles(`${path} cannot be written`, () => writeFileSync(path, xml, { mode: 0o600 }));
    return { NCCL_GRAPH_FILE: path };
  }

  remove(): void {
    rmSync(this.#path, { recursive: true, force: true });
  }
}

/**
 * Starts the communicator of ranks that are all here with the pinned plan. To pin a ring it is started twice: NCCL writes
 * its graphs at the first start, and takes them with the wanted ring at the second.
 */
export function startPinned<C extends { destroy(): void }>(
  pin: NcclPin,
  places: readonly string[],
  start: () => C,
): C {
  const variables = pinnedVariables(pin);
  const { rings } = pin;
  if (rings === undefined || places.length === 1) return withVariables(variables, start);
  const folder = new GraphFolder();
  try {
    let xml: string;
    if ("xml" in rings) xml = rings.xml;
    else {
      withVariables(folder.dumpVariables, start).destroy();
      xml = graphsWithRing(folder.found(), rings, places);
    }
    return withVariables({ ...variables, ...folder.takeVariables(xml) }, start);
  } finally {
    folder.remove();
  }
}

/** The started parts of a rank of a job. */
interface JobCommunicator {
  /** Ends it with the other ranks, for which it waits on another thread, until that is called off. */
  end(calledOff: AbortSignal): Promise<unknown>;
  abort(): Promise<void>;
}

/** The start of one rank of a job. */
export interface JobStart<C> {
  /** Agrees with the other ranks on the id of a start, which all of them are about to make. */
  readonly agreeOnId: (which: "first" | "pinned") => Promise<Uint8Array>;
  /** Has NCCL start. */
  readonly begin: (id: Uint8Array) => Promise<C>;
  /** Hands rank 0's bytes to all. */
  readonly share: (own: () => Uint8Array) => Promise<Uint8Array>;
  /** The start is not waited for any more. */
  readonly cancelled?: AbortSignal;
}

/** The same for the ranks of a job, one in each process. Variables are set only after all ranks have agreed on an id. */
export async function startPinnedJob<C extends JobCommunicator>(
  pin: NcclPin,
  places: readonly string[],
  { agreeOnId, begin, share, cancelled }: JobStart<C>,
): Promise<C> {
  const variables = pinnedVariables(pin);
  const { rings } = pin;
  const start = async (which: "first" | "pinned", under: Variables): Promise<C> => {
    const id = await agreeOnId(which);
    return startWithVariables(under, () => begin(id), cancelled);
  };
  if (rings === undefined || places.length === 1) return start("pinned", variables);
  const folder = new GraphFolder();
  try {
    let xml: string;
    if ("xml" in rings) xml = rings.xml;
    else {
      const first = await start("first", folder.dumpVariables);
      const sharing = share(() => new TextEncoder().encode(folder.found()));
      const found = await sharing.catch(async (error) => {
        await first.abort();
        throw error;
      });
      await first.end(cancelled ?? new AbortController().signal);
      cancelled?.throwIfAborted();
      xml = graphsWithRing(new TextDecoder().decode(found), rings, places);
    }
    return await start("pinned", { ...variables, ...folder.takeVariables(xml) });
  } finally {
    folder.remove();
  }
}

/**
 * The graphs that NCCL found, with another ring.
 *
 * The file names GPUs by the driver's number, which follows their places on the bus; so the places of the ranks
 * give the number of each rank, also where only some GPUs are visible.
 *
 * @internal
 */
export function graphsWithRing(
  found: string,
  ring: readonly number[],
  places: readonly string[],
): string {
  const devices = devicesIn(found);
  const byPlace = places.map((_, rank) => rank).sort((a, b) => compare(places[a], places[b]));
  const position = (rank: number): number => byPlace.indexOf(rank);
  return graphFile(withRing(graphTopology(found)(places.length), ring.map(position)), devices);
}

function devicesIn(xml: string): number[] {
  const numbers = [...xml.matchAll(/<gpu dev="(0x[0-9a-fA-F]+|\d+)"/g)].map(([, dev]) =>
    Number(dev),
  );
  return [...new Set(numbers)].sort((a, b) => a - b);
}

function compare(a = "", b = ""): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
