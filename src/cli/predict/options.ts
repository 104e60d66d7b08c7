/** The options of `twinccl predict`: of a collective by sizes, of a program, and of the machine of both. */
import { algorithmFile } from "../algorithms.ts";
import { sweepOptions } from "../args.ts";
import { UsageError } from "../context.ts";
import { type NamedFile, refuseSameFile } from "../files.ts";
import { graphFiles } from "../machines.ts";
import type { OptionTable, Parsed } from "../options.ts";

/** Names of wirings, where no library is followed. */
export const wirings = ["crossbar", "fat-tree", "torus", "ring"] as const;

/** All options. */
export const options = {
  ranks: { short: "n", value: "N", help: "number of ranks, up to 1048576 (8)" },
  ...sweepOptions,
  dtype: { short: "d", value: "TYPE", help: "element type (float32)" },
  root: { short: "r", value: "RANK", help: "root (0)" },
  algorithm: {
    value: "NAMES",
    help: "only these algorithms, or FILEs', with commas between (all)",
  },
  job: { value: "FILE", help: "predict FILE's program, in place of a COLLECTIVE" },
  contents: { help: "--job: buffers have contents, for a program that uses them" },
  like: {
    value: "LIBRARY",
    help: "NCCL's choices and times: nccl-2.27 to 2.30, torch-2.10 to 2.14",
  },
  machine: { value: "FILE", help: "the profile of the machine, by twinccl calibrate (h200x8)" },
  nccl: { value: "SETTINGS", help: "how NCCL is set up (default)" },
  mode: { value: "eager|graph", help: "calls one by one, or replayed from a recording (graph)" },
  latency: { help: "each call is awaited before the next one (back to back)" },
  processes: { value: "each|one", help: "a process for each rank, or one for all (each)" },
  topology: {
    value: "NAME",
    help: "a MACHINE of NCCL (h200x8), or crossbar, fat-tree, torus, ring",
  },
  groups: {
    value: "A,B,…",
    help: "fat-tree: ranks below a switch, such switches below the next (8)",
  },
  oversubscription: { value: "X", help: "fat-tree: ports below over width above, each level (1)" },
  dimensions: { value: "AxBx…", help: "torus: ranks in each dimension" },
  "latency-ns": { value: "NS", help: "from one rank to another (of the machine, else 1000)" },
  "overhead-ns": {
    value: "NS",
    help: "that a message holds a port beside its bytes (100; on machines 0)",
  },
  "hop-latency-ns": { value: "NS", help: "of each shared link on the way (500)" },
  "gigabytes-per-second": { value: "GBPS", help: "of a port each way (of the machine, else 400)" },
  credits: { value: "N", help: "messages between two ranks before the sender waits (any number)" },
  svg: { value: "FILE", help: "draw time by size; of a --job the timeline of its ranks" },
  trace: {
    value: "FILE",
    help: "--job: write calls and work: a Chrome trace for .json, else text",
  },
  json: { help: "print one JSON document instead of the table" },
  out: { value: "FILE", help: "also write the JSON document to FILE" },
} as const satisfies OptionTable;

/** The given options. */
export type PredictOptions = Parsed<typeof options>;

/** The machine of `--topology`; `undefined` where it names links, or nothing. */
export function machineText(parsed: PredictOptions): string | undefined {
  const name = parsed.text("topology");
  return wirings.some((each) => each === name) ? undefined : name;
}

/** Options of a collective alone, and of a program alone. */
const ofCollective = [
  ...["minbytes", "maxbytes", "stepfactor", "stepbytes", "dtype", "root", "algorithm"],
  ...["groups", "oversubscription", "dimensions", "overhead-ns", "hop-latency-ns", "credits"],
] as (keyof typeof options)[];
const ofJob = ["contents", "trace"] as const;

/** Refuses outputs that would overwrite each other or a file that is read. */
export function refuseSameOutputs(parsed: PredictOptions): void {
  const outputs = (["out", "svg", "trace"] as const).map((name) => fileOf(parsed, name));
  const inputs = [
    ...(["job", "machine"] as const).map((name) => fileOf(parsed, name)),
    ...graphFiles(machineText(parsed)).map((path) => ({ what: "--topology", path })),
    ...(parsed.text("algorithm") ?? "").split(",").map((word) => {
      return { what: "--algorithm", path: algorithmFile(word) };
    }),
  ];
  outputs.forEach(({ what, path }, i) => {
    refuseSameFile(what, path, [...outputs.slice(0, i), ...inputs]);
  });
}

function fileOf(
  parsed: PredictOptions,
  name: "out" | "svg" | "trace" | "job" | "machine",
): NamedFile {
  return { what: `--${name}`, path: parsed.text(name) };
}

/** Refuses options that would have no effect. */
export function refuseOthers(parsed: PredictOptions): void {
  const job = parsed.text("job");
  if (job === undefined) {
    for (const name of ofJob) {
      if (parsed.has(name)) throw new UsageError(`--${name} goes with --job`);
    }
    return;
  }
  const [collective] = parsed.positionals;
  if (collective !== undefined) {
    throw new UsageError(`--job ${job}: found "${collective}" too; name a collective or a program`);
  }
  for (const name of ofCollective) {
    if (parsed.has(name)) throw new UsageError(`--${name} is of a collective, not of --job`);
  }
}
