/** Starts NCCL with a pinned plan: configuration, environment variables and graph file. */
import { readFileSync, writeFileSync } from "node:fs";
import {
  graphFile,
  graphTopology,
  type NcclPin,
  type ResolvedPin,
  resolvePin,
  withRing,
} from "../../../algorithms/index.ts";
import { InvalidArgumentError } from "../../../api/index.ts";
import type { ConfigFields } from "../sys/layouts.ts";
import { PrivateFolder, withFiles } from "./private-files.ts";
import { startWithVariables, type Variables, withVariables } from "./start-variables.ts";

/** Limits on channels, as fields of `ncclConfig_t`. */
export function pinnedConfig({ minChannels, maxChannels }: ResolvedPin): ConfigFields {
  return {
    ...(minChannels !== undefined && { minCTAs: minChannels }),
    ...(maxChannels !== undefined && { maxCTAs: maxChannels }),
  };
}

/** Variables that NCCL reads at every start of a communicator. */
const readAtStarts: readonly string[] = ["NCCL_ALGO", "NCCL_PROTO"];

/**
 * A pin that reaches NCCL whole.
 *
 * @throws InvalidArgumentError for variables that NCCL reads once per process and that no field of a pin stands for.
 */
export function reachingPin(pin: NcclPin | undefined): ResolvedPin {
  const resolved = resolvePin(pin);
  const name = Object.keys(resolved.variables ?? {}).find((each) => !readAtStarts.includes(each));
  if (name === undefined) return resolved;
  throw new InvalidArgumentError(
    {
      headline: `nccl: plan.variables: found ${name}, which NCCL reads once per process`,
      hint: `set ${name} in the environment of the process${name === "NCCL_NVLS_ENABLE" ? ", or nccl({ nvls })" : ""}`,
    },
    { field: "plan.variables" },
  );
}

/** True if NCCL reads parts of the pinned plan from variables during its start. */
export function needsVariables({ rings, variables }: ResolvedPin): boolean {
  return rings !== undefined || variables !== undefined;
}

/** A private folder for graph files during the start of a communicator. */
class GraphFolder extends PrivateFolder {
  constructor() {
    super("twinccl-graph-");
  }

  /** Variables that make rank 0 write NCCL's graphs. */
  get dumpVariables(): Variables {
    return { NCCL_GRAPH_DUMP_FILE: this.file("found.xml") };
  }

  /** Contents of rank 0's file. */
  found(): string {
    return withFiles("NCCL wrote no graphs", () => readFileSync(this.file("found.xml"), "utf8"));
  }

  /** Variables that make NCCL read these graphs. */
  takeVariables(xml: string): Variables {
    const path = this.file("wanted.xml");
    withFiles(`${path} cannot be written`, () => writeFileSync(path, xml, { mode: 0o600 }));
    return { NCCL_GRAPH_FILE: path };
  }
}

/**
 * Starts a communicator of local ranks with the pinned plan. A pinned ring takes two starts: NCCL writes its graphs at the
 * first, and reads them with the pinned ring at the second.
 */
export async function startPinned<C extends StartedCommunicator>(
  pin: ResolvedPin,
  places: readonly string[],
  start: () => C,
): Promise<C> {
  const { rings, variables = {} } = pin;
  if (rings === undefined || places.length === 1) return withVariables(variables, start);
  const folder = new GraphFolder();
  let first: C | undefined;
  try {
    let xml: string;
    if ("xml" in rings) xml = rings.xml;
    else {
      // No other start may come between the two.
      first = withVariables(folder.dumpVariables, start);
      xml = graphsWithRing(folder.found(), rings, places);
    }
    return withVariables({ ...variables, ...folder.takeVariables(xml) }, start);
  } finally {
    await first?.abort();
    folder.remove();
  }
}

/** A communicator that NCCL has started. */
interface StartedCommunicator {
  abort(): Promise<void>;
}

/** The start of one rank of a job. */
export interface JobStart<C> {
  /** Shares the unique id of the next start among the ranks. */
  readonly agreeOnId: (which: "first" | "pinned") => Promise<Uint8Array>;
  /** Starts NCCL. */
  readonly begin: (id: Uint8Array) => Promise<C>;
  /** Broadcasts rank 0's bytes. */
  readonly share: (own: () => Uint8Array) => Promise<Uint8Array>;
  /** Aborted if the job no longer waits for the start. */
  readonly cancelled?: AbortSignal;
}

/** Like `startPinned`, for a job with one rank per process. Variables are set only after all ranks share an id. */
export async function startPinnedJob<C extends StartedCommunicator>(
  pin: ResolvedPin,
  places: readonly string[],
  { agreeOnId, begin, share, cancelled }: JobStart<C>,
): Promise<C> {
  const { rings, variables = {} } = pin;
  const start = async (which: "first" | "pinned", under: Variables): Promise<C> => {
    const id = await agreeOnId(which);
    return startWithVariables(under, () => begin(id), cancelled);
  };
  if (rings === undefined || places.length === 1) return start("pinned", variables);
  const folder = new GraphFolder();
  let first: C | undefined;
  try {
    let xml: string;
    if ("xml" in rings) xml = rings.xml;
    else {
      first = await start("first", folder.dumpVariables);
      const found = await share(() => new TextEncoder().encode(folder.found()));
      cancelled?.throwIfAborted();
      xml = graphsWithRing(new TextDecoder().decode(found), rings, places);
    }
    return await start("pinned", { ...variables, ...folder.takeVariables(xml) });
  } finally {
    // The other ranks may be in their first start until they are in the second one.
    await first?.abort();
    folder.remove();
  }
}

/**
 * NCCL's graphs with another ring.
 *
 * The file identifies GPUs by the driver's numbers, which follow their bus addresses. The addresses of the ranks therefore give
 * their numbers, even if only some GPUs are visible.
 *
 * @internal
 */
export function graphsWithRing(
  found: string,
  ring: readonly number[],
  places: readonly string[],
): string {
  const devices = devicesIn(found);
  // Since 2.30 the file names ranks too; here they follow from the places.
  const unranked = found.replaceAll(/ rank="\d+"/g, "");
  const byPlace = places.map((_, rank) => rank).sort((a, b) => compare(places[a], places[b]));
  const position = (rank: number): number => byPlace.indexOf(rank);
  return graphFile(withRing(graphTopology(unranked)(places.length), ring.map(position)), devices);
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
