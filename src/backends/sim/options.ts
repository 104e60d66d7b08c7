/** The options of `sim()`. */
import type {
  AlgorithmChoice,
  LibraryName,
  LinkOptions,
  MachineProfile,
  NcclPin,
  TopologyOption,
} from "../../algorithms/index.ts";
import { InvalidArgumentError } from "../../api/index.ts";
import {
  assertOptions,
  integer,
  invalid,
  type OptionKinds,
  oneOf,
} from "../../api/option-kinds.ts";
import type { Executor } from "./executor.ts";
import { assertFault, type Fault } from "./faults.ts";
import { type ScheduleName, scheduleNames } from "./scheduler.ts";
import { Trace } from "./trace/trace.ts";

/** Options of `sim`. */
export interface SimOptions {
  /**
   * Fixes the order in which ranks resume; 0 when left out. Any safe integer; each one gives another order. Results do not
   * depend on it.
   */
  readonly seed?: number | undefined;
  /**
   * The order in which ready ranks resume; `"fair"` when left out. A rank is ready while an operation that it awaits has
   * settled and its program has not resumed. Results do not depend on it; the same seed and schedule give the same order.
   *
   * - `"fair"`: all ranks of a call resume together, in an order by seed, and advance side by side.
   * - `"random"`: one ready rank is picked at each step by seed, and runs until it awaits something else. A rank may get many
   *   calls ahead of another one, so different seeds reach many interleavings.
   * - `"virtual-time"`: the ready rank with the least virtual time runs until it awaits something else. A rank
   *   that is late in virtual time (`comm.work`, a slow link) is late in its effects on shared JavaScript state too.
   *   Ranks at equal times resume in an order by seed.
   *
   * The latter two resume one rank per turn of the event loop, some microseconds each, and none while an executor runs a call.
   * With them, a custom `executor` with a promise that waits for a resumed rank may never end.
   */
  readonly schedule?: ScheduleName | undefined;
  /**
   * The algorithm of a collective: a name of the catalogue, or your own `Algorithm` (`twinccl/algorithms`). Your own is
   * verified for each number of ranks and root before its first call. Left out, `like` decides.
   */
  readonly algorithms?: AlgorithmChoice | undefined;
  /**
   * The library of the followed plans, bit for bit: `nccl-2.27` to `nccl-2.30`, or `torch-2.10` to `torch-2.14` for the NCCL in
   * torch's wheel for CUDA 13. `nccl-2.28` was recorded on GPUs, the others follow the source. By default, worlds of up to 8
   * ranks follow the plans of `nccl-2.28`.
   * Larger worlds run the catalogue's first algorithms, without a claim about NCCL. Named, a world that the machine has too few
   * devices for is refused. Collectives chosen in `algorithms` keep that choice.
   */
  readonly like?: LibraryName | undefined;
  /**
   * The machine of the followed plans; eight H200 behind NVSwitch (`"h200x8"`) when left out. `"h200-hosts"` is one H200 on
   * every host, with sockets at 10 Gb/s between them; `{ hosts, gpusPerHost: 1, network }` names other speeds. `xml` is the text
   * of a graph file that NCCL wrote on a node of Hopper GPUs (NCCL_GRAPH_DUMP_FILE), by itself or among hosts like it; an array
   * has the text of each host. It applies to exactly as many ranks as these hosts have GPUs.
   */
  readonly topology?: TopologyOption | undefined;
  /** The pinned plans of NCCL, as for `nccl({ plan })`: algorithm, protocol, channels, rings, buffer sizes. */
  readonly plan?: NcclPin | undefined;
  /**
   * The profile of a measured machine, as `parseProfile` of `twinccl/algorithms` reads it: the virtual clock of NCCL's plans. Its
   * topology and NCCL are those of the plans. Excludes `link`. Left out, it is the library's profile of the machine.
   */
  readonly machine?: MachineProfile | undefined;
  /**
   * The links between ranks, for virtual time. Left out, calls take the time that NCCL takes on the machine of the followed
   * plans, where it was measured: `h200x8`. Other calls and worlds take the defaults of a link.
   */
  readonly link?: LinkOptions | undefined;
  /**
   * Moves the data. By default one `wasm()`, shared by all such worlds. It needs WebAssembly with SIMD, which a page's policy
   * must allow, and address space for its memory (about 10 GiB); otherwise `cpu()` is used. Results do not depend on it.
   */
  readonly executor?: Executor | undefined;
  /** Collects every event. */
  readonly trace?: Trace | undefined;
  /** Calls that fail when they are made: `[failAt(2, 5)]`. Each strikes once, also when the world is rebuilt. */
  readonly faults?: readonly Fault[] | undefined;
  /**
   * Compares checksums: a buffer that was written between its call and the move of the data is an error. Calls on different
   * streams in different orders are an error too, in place of a warning. Slow; for tests.
   */
  readonly strict?: boolean | undefined;
  /**
   * Phantom data: buffers have sizes and no contents. A program with gigabytes on a thousand ranks can then run in virtual time
   * on a small machine. Calls are checked, matched, timed and traced as ever, and take the same virtual time; nothing is moved.
   * `fill` is accepted and drops its value; `copyFrom`, `copyTo`, `toHost` and TypedArrays in calls are refused; see
   * `comm.capabilities.phantom`. Excludes `executor` and `strict`.
   */
  readonly phantom?: boolean | undefined;
}

const kinds: OptionKinds<SimOptions> = {
  seed: integer(Number.MIN_SAFE_INTEGER),
  algorithms: "object",
  like: true,
  topology: true,
  plan: "object",
  machine: "object",
  link: "object",
  schedule: oneOf(scheduleNames),
  executor: {
    needed: "an executor, such as wasm()",
    holds: (value) => typeof (value as Partial<Executor> | null)?.execute === "function",
  },
  trace: { needed: "a new Trace()", holds: (value) => value instanceof Trace },
  faults: "array",
  strict: "boolean",
  phantom: "boolean",
};

/** Refuses invalid options; plans, links and rings are checked by their constructors. */
export function assertSimOptions(options: SimOptions): void {
  assertOptions("sim", options, kinds, { renamed: { nccl: "plan" } });
  const { faults = [], phantom = false } = options;
  if (options.machine !== undefined && options.link !== undefined) {
    throw invalid("sim", "link", "an object", "nothing beside machine, which has the times");
  }
  for (const [at, fault] of faults.entries()) assertFault(`sim: faults[${at}]`, fault);
  if (phantom) assertPhantom(options);
}

/** Refuses options that need contents. */
function assertPhantom({ executor, strict }: SimOptions): void {
  if (executor === undefined && strict !== true) return;
  const [field, why] =
    executor === undefined
      ? ["strict", "lending is proven by checksums of contents, and there are none"]
      : ["executor", "nothing is moved, so no executor is needed"];
  throw new InvalidArgumentError(
    {
      headline: `sim: ${field}: given with phantom: ${why}`,
      hint: `leave ${field} or phantom out`,
    },
    { field },
  );
}
