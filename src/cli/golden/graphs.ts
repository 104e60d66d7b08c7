/** Graphs of a recording: NCCL reads those of the file's machine, and the file keeps those that NCCL reads. */
import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import type { GraphNodes } from "../../algorithms/index.ts";
import { machineOf } from "../../algorithms/nccl/index.ts";
import { launcherEnvironment } from "../../api/world/launchers.ts";
import { PrivateFolder } from "../../backends/nccl/process/private-files.ts";
import type { GoldenHead } from "../../golden/format.ts";
import { UsageError } from "../context.ts";
import type { NamedFile } from "../files.ts";
import { graphMachine } from "../machines.ts";

const variable = "NCCL_GRAPH_FILE";

/** The file whose graphs NCCL reads, if it is set. */
export function graphFile(): NamedFile {
  return { what: variable, path: process.env[variable] || undefined };
}

/**
 * The head of records that NCCL makes: the installed library, and the machine of NCCL_GRAPH_FILE, if that is set.
 *
 * @throws UsageError for graphs in both; InvalidArgumentError for a file that is no graph file.
 */
export async function recordedHead(head: GoldenHead): Promise<GoldenHead> {
  const { examine } = await import("../../backends/nccl/discovery/examine.ts");
  const { nccl } = (await examine()).versions;
  const installed = nccl === null ? head : { ...head, library: `nccl-${nccl}` };
  const { path } = graphFile();
  if (path === undefined) return installed;
  if (graphsOf(head) !== undefined) {
    throw new UsageError(`record: the file's machine has graphs, unset ${variable}`);
  }
  const cpu = cpus()[0]?.model.includes("AMD") ? ("amd" as const) : undefined;
  return { ...installed, topology: graphMachine(variable, [path], cpu) };
}

function graphsOf({ topology }: GoldenHead): GraphNodes | undefined {
  return typeof topology === "object" && "xml" in topology ? topology : undefined;
}

/** Number of hosts of so many ranks. Nodes of one machine have equally many, because those of a job do. */
export function hostsOf({ topology }: GoldenHead, ranks: number): number {
  if (topology === "h200x8") return 1;
  const { nodes, nodeSizes } = machineOf(topology)(ranks);
  if (nodeSizes === undefined) return nodes;
  throw new UsageError(
    `record: hosts of ${nodeSizes.join(", ")} ranks, needs equally many on each imitated host`,
  );
}

/** Lets every communicator of NCCL read the graphs of this process's node, those of splits too. */
export async function underGraphs<T>(head: GoldenHead, action: () => Promise<T>): Promise<T> {
  const graphs = graphsOf(head);
  if (graphs === undefined) return action();
  const { rank = 0, localSize = 1 } = launcherEnvironment(process.env) ?? {};
  const text =
    typeof graphs.xml === "string" ? graphs.xml : graphs.xml[Math.floor(rank / localSize)];
  const before = process.env[variable];
  const folder = new PrivateFolder("twinccl-graph-");
  try {
    const path = folder.file("graph.xml");
    // NCCL 2.30 takes ranks from the file, also on nodes that have others.
    const unranked = (text ?? "").replaceAll(/ rank="\d+"/g, "");
    writeFileSync(path, unranked, { mode: 0o600 });
    process.env[variable] = path;
    return await action();
  } finally {
    if (before === undefined) delete process.env[variable];
    else process.env[variable] = before;
    folder.remove();
  }
}
