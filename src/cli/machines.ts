/** Machines on the command line: a name, hosts with a network of another speed, or graph files of NCCL. */
import { existsSync } from "node:fs";
import {
  type CpuVendor,
  type GraphNodes,
  graphTopology,
  type TopologyName,
  type TopologyOption,
  topologies,
} from "../algorithms/index.ts";
import { maxRanks } from "./args.ts";
import { UsageError } from "./context.ts";
import { readText } from "./files.ts";

const names = Object.keys(topologies) as TopologyName[];

/** The option's row in a command's table. */
export const machineOption = {
  topology: { value: "MACHINE", help: "whose plans (h200x8)" },
} as const;

/** The meaning of MACHINE, for help texts. */
export const machineHelp = `MACHINE is h200x8, eight H200 of one node; h200-hosts, an H200 on each host and sockets at 10 Gb/s;
h200-hosts@25, the same at 25 Gb/s; or FILE.xml of NCCL_GRAPH_DUMP_FILE, for nodes that are alike.
A.xml+B.xml has the file of each node. FILE.xml@amd: AMD's processors (Intel's).
`;

/**
 * The machine of that name.
 *
 * @throws UsageError for an unknown name or a missing file, InvalidArgumentError with file and line for one that is no graph
 * file or contradicts itself.
 */
export function machineNamed(option: string, text: string): TopologyOption {
  const name = names.find((each) => each === text);
  if (name !== undefined) return name;
  const speed = /^h200-hosts@(.*)$/.exec(text)?.[1];
  if (speed !== undefined) return hostsAt(option, speed);
  if (isGraphs(text)) return graphsOf(option, text);
  throw new UsageError(
    `${option}: found "${text}", needs one of ${names.join(", ")}, h200-hosts@SPEED, or graph files of NCCL such as graph.xml`,
  );
}

/** Hosts of one GPU with sockets at a speed, as many as there are ranks. */
function hostsAt(option: string, speed: string): TopologyOption {
  const gigabitsPerSecond = /^\d{1,6}(\.\d{1,6})?$/.test(speed) ? Number(speed) : 0;
  if (gigabitsPerSecond > 0) {
    return { hosts: maxRanks, gpusPerHost: 1, network: { kind: "socket", gigabitsPerSecond } };
  }
  throw new UsageError(
    `${option}: found "h200-hosts@${speed}", needs the network's Gb/s above 0, such as h200-hosts@25`,
  );
}

/** Nodes by the names of their graph files. */
function graphsOf(option: string, text: string): TopologyOption {
  const { paths, cpu } = graphsIn(text);
  return graphMachine(option, paths, cpu as CpuVendor | undefined);
}

/** The graph files that a machine's text names. */
export function graphFiles(text: string | undefined): readonly string[] {
  return text !== undefined && isGraphs(text) ? graphsIn(text).paths : [];
}

function isGraphs(text: string): boolean {
  return /[./\\]/.test(text);
}

/** The path of an existing file may contain a separator. */
function graphsIn(text: string): { readonly paths: string[]; readonly cpu: string | undefined } {
  const [, files = "", cpu] = /^(.*?)(?:@(amd|intel))?$/s.exec(text) ?? [];
  return { paths: existsSync(files) ? [files] : files.split(/[+,]/), cpu };
}

/** The machine of graph files. They are read here too, because only here they have names. */
export function graphMachine(
  option: string,
  paths: readonly string[],
  cpu: CpuVendor | undefined,
): GraphNodes {
  const texts = paths.map((path) => readText(path, option));
  const machine = {
    xml: texts.length === 1 ? (texts[0] as string) : texts,
    ...(cpu !== undefined && { cpu }),
  };
  graphTopology(machine, paths);
  return machine;
}
