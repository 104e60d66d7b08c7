/** NCCL and the measured machine of a prediction: `--like`, `--machine`, `--topology`, `--nccl` and the way of calling. */
import {
  type CallMode,
  type LibraryName,
  type Link,
  type MachineProfile,
  type Planner,
  parseProfile,
  plannersOf,
} from "../../algorithms/index.ts";
import { modeText } from "../../algorithms/nccl/index.ts";
import {
  measuredProfile,
  type PlanOptions,
  type PlanQuestion,
  planOf,
} from "../../algorithms/plans/index.ts";
import { UnsupportedError } from "../../api/index.ts";
import type { NcclSetup } from "../../golden/case.ts";
import { UsageError } from "../context.ts";
import { readText } from "../files.ts";
import { machineNamed } from "../machines.ts";
import { libraryNameOf, ncclChoice } from "../nccl-settings.ts";
import { oneOf } from "../options.ts";
import { machineText, type PredictOptions } from "./options.ts";

/** The followed library with its machine. */
export interface Library {
  /** For planners and the simulation. */
  readonly options: Omit<PlanOptions, "algorithms"> & { readonly like: LibraryName };
  readonly setup: NcclSetup;
  /** True if both buffers of a call lie in symmetric memory. */
  readonly symmetric: boolean;
  /** `undefined` where the machine was not measured. */
  readonly profile: MachineProfile | undefined;
  /** The machine as options name it. */
  readonly topology: string;
  /** The machine and NCCL in words: `8 x NVIDIA H200, NVSwitch, NCCL 2.28.9`. */
  readonly machineText: string;
  /** The way of calling in words. */
  readonly modeText: string;
}

/** The library that the options name; where they name none, the default one if `isFollowed`, else `undefined`. */
export function libraryIn(parsed: PredictOptions, isFollowed = false): Library | undefined {
  const named = machineText(parsed);
  const asked = (["like", "machine", "nccl", "mode", "latency", "processes"] as const).some(
    (name) => parsed.has(name),
  );
  if (!asked && named === undefined && !isFollowed) return undefined;
  const wiring = parsed.text("topology");
  if (named === undefined && wiring !== undefined) {
    throw new UsageError(`--topology: found "${wiring}", needs a machine where NCCL is followed`);
  }
  const file = parsed.text("machine");
  const given = file === undefined ? undefined : parseProfile(readText(file, "--machine"), file);
  const topology = named ?? given?.topology ?? "h200x8";
  const like = libraryNameOf("--like", parsed.text("like") ?? libraryOfProfile(given));
  const { setup, symmetric } = ncclChoice("--nccl", parsed.text("nccl"));
  const machine = machineNamed("--topology", topology);
  const base = { like, topology: machine, plan: setup, machine: given };
  const measured = measuredProfile(base);
  const ofTimes = (["mode", "latency", "processes"] as const).find((name) => parsed.has(name));
  if (measured === undefined && ofTimes !== undefined) {
    throw new UsageError(
      `--${ofTimes} is of a machine's times: no profile of ${topology} with ${like}`,
    );
  }
  const mode = measured && modeIn(parsed, measured.mode);
  const profile = measured && mode && { ...measured, mode };
  return {
    options: { ...base, machine: profile },
    ...{ setup, symmetric, profile, topology },
    machineText:
      profile === undefined ? `${topology}, ${like}` : `${profile.machine}, NCCL ${profile.nccl}`,
    modeText: mode === undefined ? "" : textOfMode(mode, symmetric),
  };
}

function libraryOfProfile(profile: MachineProfile | undefined): string {
  return profile === undefined ? "nccl-2.28" : `nccl-${profile.nccl}`;
}

/** The way of calling: that of the options, else of the profile; in ordinary memory, as on the clock of the planner. */
function modeIn(parsed: PredictOptions, { launch, processes, awaited }: CallMode): CallMode {
  return {
    launch: oneOf("--mode", parsed.text("mode") ?? launch, ["eager", "graph"]),
    processes: oneOf("--processes", parsed.text("processes") ?? processes, ["each", "one"]),
    memory: "ordinary",
    awaited: parsed.has("latency") || awaited,
  };
}

function textOfMode(mode: CallMode, symmetric: boolean): string {
  const text = modeText(symmetric ? { ...mode, memory: "symmetric" } : mode);
  return mode.awaited ? text : `${text}, back to back`;
}

/** The reason why a machine has no times. */
export function unmeasuredText({ options: { like }, topology }: Library): string {
  return `not predicted: no profile of ${topology} with ${like}; twinccl calibrate makes one of a machine like h200x8`;
}

/** A call under one choice. */
export interface ChoiceTime {
  /** Algorithm and protocol, such as `Ring LL`; the kernel of symmetric memory; `messages` for sends and receives. */
  readonly name: string;
  readonly channels: number;
  /** `undefined` where no machine was measured. */
  readonly predictedNs: number | undefined;
  /** The reason why the time is extrapolated. */
  readonly extrapolated: string | undefined;
}

/** Calls of a library on a number of ranks. */
export class LibraryCalls {
  readonly #library: Library;
  readonly #planner: Planner;
  /** Planners with a forced algorithm and protocol. */
  readonly #forced: readonly Planner[];

  /** Throws for more ranks than the machine has. */
  constructor(library: Library, ranks: number) {
    this.#library = library;
    const { options, setup } = library;
    this.#planner = plannersOf(options)(ranks);
    this.#forced = everyChoice(setup).map((plan) => plannersOf({ ...options, plan })(ranks));
  }

  /** The link of single messages on the machine; `undefined` where it was not measured. */
  get messages(): Link | undefined {
    return this.#planner.messages;
  }

  /** NCCL's choice. */
  chosen(question: PlanQuestion): ChoiceTime {
    return timeUnder(this.#planner, this.#placed(question));
  }

  /** Every algorithm and protocol that NCCL has for the call, and its own choice, which may be one of symmetric memory. */
  every(question: PlanQuestion): ChoiceTime[] {
    const found = new Map<string, ChoiceTime>();
    for (const planner of this.#forced) {
      const time = ifServed(() => timeUnder(planner, question));
      if (time !== undefined && !found.has(time.name)) found.set(time.name, time);
    }
    const chosen = this.chosen(question);
    if (!found.has(chosen.name)) found.set(chosen.name, chosen);
    return [...found.values()];
  }

  #placed(question: PlanQuestion): PlanQuestion {
    return this.#library.symmetric ? { ...question, place: { send: 0, recv: 0 } } : question;
  }
}

/** The settings with each algorithm and protocol in place of theirs. */
function everyChoice(setup: NcclSetup): NcclSetup[] {
  const { variables = {}, ...fields } = setup;
  const { NCCL_ALGO: _algorithm, NCCL_PROTO: _protocol, ...others } = variables;
  const algorithms = ["Ring", "Tree", "PAT"] as const;
  const protocols = ["LL", "LL128", "Simple"] as const;
  return algorithms.flatMap((algorithm) =>
    protocols.map((protocol) => ({ ...fields, variables: others, algorithm, protocol })),
  );
}

function timeUnder(planner: Planner, question: PlanQuestion): ChoiceTime {
  const time = planner.time(question, undefined);
  const plan = planOf(planner, question);
  const { name, channels } = time?.choice ?? plan;
  return { name, channels, predictedNs: time?.ns, extrapolated: time?.extrapolated };
}

function ifServed<T>(ask: () => T): T | undefined {
  try {
    return ask();
  } catch (error) {
    if (error instanceof UnsupportedError) return undefined;
    throw error;
  }
}
