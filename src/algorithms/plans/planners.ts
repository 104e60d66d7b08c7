/**
 * Planners of worlds: NCCL's plans where they apply, the catalogue for everything else. They give the plan of a call, its
 * explanation, and its refusal.
 *
 * NCCL's plans apply when `like` names them, and without a name in worlds that fit on the devices of its machine. Every plan
 * states its claim, or the reason for none.
 */

import {
  type CommInfo,
  questionPlace,
  type RankCall,
  symmetricPlace,
} from "../../api/backend-entry.ts";
import {
  type Explanation,
  InvalidArgumentError,
  type Question,
  type SpecifiedCollective,
  specifications,
  UnsupportedError,
} from "../../api/index.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import { assertArgument, assertCollective, assertInteger, hasFields } from "../arguments.ts";
import type { AlgorithmChoice } from "../catalogue.ts";
import {
  assertRingSize,
  checkedProfile,
  graphTopology,
  type Library,
  type LibraryName,
  libraryNames,
  libraryOf,
  type MachineProfile,
  type MessageUse,
  machineOf,
  machineProfiles,
  type NcclPin,
  ncclEnvironment,
  type ResolvedPin,
  resolvePin,
  rulesOf,
  type Topology,
  type TopologyOption,
  withRing,
} from "../nccl/index.ts";
import { type Link, linkOf } from "../timing.ts";
import { CataloguePlanner, checkChoice } from "./catalogue-planner.ts";
import { explainPlan, explainReduces, unexplained } from "./explain.ts";
import { MachineClock } from "./machine-clock.ts";
import { NcclPlanner } from "./nccl-planner.ts";
import {
  type BlockCounts,
  isBuilt,
  type MachineTime,
  type MessageTime,
  type Plan,
  type Planner,
  type PlanQuestion,
} from "./plan.ts";

/** Options that decide the plans. */
export interface PlanOptions {
  readonly algorithms?: AlgorithmChoice | undefined;
  readonly like?: LibraryName | undefined;
  readonly topology?: TopologyOption | undefined;
  readonly plan?: NcclPin | undefined;
  /** The profile of the machine, in place of the library's. */
  readonly machine?: MachineProfile | undefined;
}

/** The plans that apply without a name. */
const unnamed = { library: "nccl-2.28", topology: "h200x8", ranks: 8 } as const;

/**
 * Planners by size of the world. Throws for invalid options; the returned function throws for a world that is too large. `subject`
 * begins the errors.
 */
export function plannersOf(options: PlanOptions, subject = "sim"): (size: number) => Planner {
  assertArgument(
    hasFields(options, {}),
    subject,
    "options",
    options,
    "one object with named fields",
  );
  const { algorithms = {}, like, topology: machine = unnamed.topology } = options;
  checkChoice(algorithms, subject);
  if (like === undefined) assertUnnamed(options, subject);
  const pin = resolvePin(options.plan);
  const { rings, variables, ...settings } = pin;
  const topology = pinned(machineOf(machine, subject), rings);
  const library = libraryIn(options, subject);
  const forced = variables && ncclEnvironment(variables).forced;
  const nccl = sharedNcclPlanner(options, library, () => {
    return new NcclPlanner({ library, topology, settings, forced });
  });
  const catalogue = new CataloguePlanner(algorithms, subject);
  const profile = profileOf(options, library);
  const clock =
    profile &&
    new MachineClock(profile, (question) => nccl.factsOf(question), settings, unusualOf(pin));
  return (size) => {
    if (like === undefined && options.machine === undefined && size > unnamed.ranks) {
      const why = `${size} ranks are more than the ${unnamed.ranks} devices of ${unnamed.topology}`;
      return { ...unmeasured, of: (question) => catalogue.of(question, why) };
    }
    assertRingSize({ rings }, size);
    // Throws for more ranks than the machine has devices.
    topology(size);
    const ringed = hasGraphs(options) ? size : undefined;
    return new WorldPlanner(algorithms, nccl, catalogue, { clock, ringed });
  };
}

/** The planner of a world on an unknown machine: the catalogue, without a claim; `why` is the reason. */
export function unclaimedPlanner(why: string): Planner {
  const catalogue = new CataloguePlanner({}, "sim");
  return { ...unmeasured, of: (question) => catalogue.of(question, why, true) };
}

/** The parts of a planner of no measured machine. */
const unmeasured = {
  messages: undefined,
  message: () => undefined,
  time: () => undefined,
  reducesEachRoot: () => false,
} as const;

/** The profile of the machine that the options name; `undefined` where it was not measured. Throws for another machine's. */
export function measuredProfile(options: PlanOptions): MachineProfile | undefined {
  return profileOf(options, libraryIn(options, "sim"));
}

/** The library that plans follow: the named one; else the version of the profile, of those with its time model. */
function libraryIn({ like, machine }: PlanOptions, subject: string): Library {
  if (like !== undefined) return followed(like, subject);
  if (machine === undefined) return followed(unnamed.library, subject);
  const { nccl } = checkedProfile(machine, "machine");
  return followed(nccl.startsWith("2.28.") ? `nccl-${nccl}` : unnamed.library, subject);
}

function profileOf(
  { topology = unnamed.topology, machine }: PlanOptions,
  { version }: Library,
): MachineProfile | undefined {
  if (machine !== undefined) {
    checkedProfile(machine, "machine");
    const found = { topology: machine.topology, nccl: rulesOf(machine.nccl).version };
    const followed = { topology, nccl: rulesOf(version).version };
    for (const field of ["topology", "nccl"] as const) {
      if (found[field] === followed[field]) continue;
      throw invalid(
        "machine",
        field,
        textOf(found[field]),
        `that of the plans, ${textOf(followed[field])}`,
        field === "nccl" ? `like nccl-${machine.nccl} fits` : undefined,
      );
    }
    return machine;
  }
  if (typeof topology !== "string" || !Object.hasOwn(machineProfiles, topology)) return undefined;
  const profile = machineProfiles[topology];
  return profile?.nccl === rulesOf(version).version ? profile : undefined;
}

/** The reason why plans with such settings were not measured; forced algorithms and protocols were. */
function unusualOf({ rings, variables: _forced, ...settings }: ResolvedPin): string | undefined {
  const isUsual = [rings, ...Object.values(settings)].every((value) => value === undefined);
  return isUsual ? undefined : "measured with NCCL's own channels, rings and buffers";
}

/** True for graphs of NCCL, which are those of one communicator. */
function hasGraphs({ topology, plan }: PlanOptions): boolean {
  const rings = plan?.rings;
  const isFile = (option: object): boolean => "xml" in option;
  return (
    (typeof topology === "object" && isFile(topology)) || (rings !== undefined && isFile(rings))
  );
}

/** The planners of named machines, with NCCL's default settings. */
const ncclPlanners = new Map<string, NcclPlanner>();

/** Plans of a named machine are the same in every world, so worlds share them; the planner bounds their number. */
function sharedNcclPlanner(
  { topology = unnamed.topology, plan }: PlanOptions,
  { version, wheel }: Library,
  make: () => NcclPlanner,
): NcclPlanner {
  if (typeof topology !== "string" || plan !== undefined) return make();
  const key = `${version} ${wheel} ${topology}`;
  const known = ncclPlanners.get(key) ?? make();
  ncclPlanners.set(key, known);
  return known;
}

/** The facts about a world's machine beside its plans. */
interface MachineFacts {
  /** `undefined` for a machine that was not measured. */
  readonly clock: MachineClock | undefined;
  /** The only number of ranks with known rings; `undefined` where there are rings for every number. */
  readonly ringed: number | undefined;
}

/** Takes NCCL's plans where there are any, else the catalogue's. */
class WorldPlanner implements Planner {
  readonly #algorithms: AlgorithmChoice;
  readonly #nccl: NcclPlanner;
  readonly #catalogue: CataloguePlanner;
  readonly #clock: MachineClock | undefined;
  readonly #ringed: number | undefined;

  constructor(
    algorithms: AlgorithmChoice,
    nccl: NcclPlanner,
    catalogue: CataloguePlanner,
    { clock, ringed }: MachineFacts,
  ) {
    this.#algorithms = algorithms;
    this.#nccl = nccl;
    this.#catalogue = catalogue;
    this.#clock = clock;
    this.#ringed = ringed;
  }

  get messages(): Link | undefined {
    return this.#clock?.messages;
  }

  message(bytes: number, ranks: number, use: MessageUse): MessageTime | undefined {
    return this.#clock?.message(bytes, ranks, use);
  }

  time(question: PlanQuestion, counts: BlockCounts | undefined): MachineTime | undefined {
    if (this.#algorithms[question.collective] !== undefined || !question.ordered) return undefined;
    return this.#clock?.time(withRootOf(question), counts);
  }

  of(question: PlanQuestion): Plan {
    const chosen = this.#algorithms[question.collective];
    if (chosen !== undefined) {
      const how = typeof chosen === "string" ? "was chosen by name" : "is the caller's own";
      return this.#catalogue.of(question, `its algorithm ${how}`);
    }
    if (!question.ordered) return this.#catalogue.of(question, disorder, true);
    const { ranks } = question;
    if (this.#ringed !== undefined && ranks > 1 && ranks !== this.#ringed) {
      const why = `the graph file has the rings of all ${this.#ringed} ranks; NCCL searches those of a part again`;
      return this.#catalogue.of(question, why, true);
    }
    return this.#nccl.of(question) ?? this.#catalogue.of(question, "no dtype was given");
  }

  reducesEachRoot({ collective, ordered }: PlanQuestion): boolean {
    return collective === "reduceScatterv" && this.#algorithms[collective] === undefined && ordered;
  }
}

const disorder =
  "the ranks are not in the order of their devices, and the rings among them were not read";

function assertUnnamed({ topology, plan }: PlanOptions, subject: string): void {
  if (topology === undefined && plan === undefined) return;
  throw new InvalidArgumentError(
    {
      headline: `${subject}: topology and plan belong to like`,
      hint: 'pass like: "nccl-2.28" too',
    },
    { field: "like" },
  );
}

/** The topology with pinned rings. Those apply to the world; communicators of a split have the rings that NCCL finds. */
function pinned(found: (ranks: number) => Topology, rings: NcclPin["rings"]) {
  if (rings === undefined) return found;
  if ("xml" in rings) return graphTopology(rings.xml);
  return (ranks: number): Topology =>
    ranks === rings.length ? withRing(found(ranks), rings) : found(ranks);
}

function followed(like: unknown, subject: string): Library {
  const library = typeof like === "string" ? libraryOf(like) : undefined;
  if (library !== undefined) return library;
  const hint = `known libraries: ${libraryNames.join(", ")}; others are not guessed`;
  if (typeof like !== "string") {
    throw invalid(subject, "like", textOf(like), "the name of a library", hint);
  }
  const headline = `${subject}: like: found ${like}, which is unknown`;
  if (/^(nccl|torch)-/.test(like))
    throw new UnsupportedError({ headline, hint }, { field: "like" });
  throw new InvalidArgumentError({ headline, hint }, { field: "like" });
}

/** The plan of a call; a root counts only where the collective has one. */
export function planOf(planner: Planner, question: PlanQuestion): Plan {
  if (typeof planner?.of !== "function") {
    throw invalid("planOf", "planner", textOf(planner), "a planner, as plannersOf gives it");
  }
  const { collective, ranks, count } = question ?? ({} as PlanQuestion);
  const isKnown = typeof collective === "string" && Object.hasOwn(specifications, collective);
  const areCounts = Number.isSafeInteger(ranks) && Number.isSafeInteger(count);
  // Right calls do not enter the checks.
  if (!isKnown || !areCounts || ranks < 1 || count < 0) {
    assertCollective("planOf", collective);
    assertInteger("planOf", "ranks", ranks, 1, Number.MAX_SAFE_INTEGER);
    assertInteger("planOf", "count", count, 0, Number.MAX_SAFE_INTEGER);
  }
  return planner.of(withRootOf(question));
}

function withRootOf(question: PlanQuestion): PlanQuestion {
  const { rooted } = specifications[question.collective];
  return rooted ? question : { ...question, root: -1 };
}

/**
 * Explains a call on a communicator, with the chunks of the output of `rank`: predicted, nothing runs. Without a link the time
 * is that of the planner's machine, where it was measured.
 */
export function explainCall(
  planner: Planner,
  link: Link | undefined,
  question: Question,
  comm: CommInfo,
  rank: number,
): Explanation {
  const { collective } = question;
  if (!isBuilt(collective)) throw unexplained(collective);
  const call = planQuestionOf(collective, question, comm);
  const timeOf = (part: PlanQuestion, counts?: BlockCounts): MachineTime | undefined =>
    link === undefined ? planner.time(part, counts) : undefined;
  if (!planner.reducesEachRoot(call)) {
    const clock = { link: link ?? linkOf(), time: () => timeOf(call, question.counts) };
    return explainPlan(planOf(planner, call), question, clock, rank);
  }
  const counts = question.counts?.[0] ?? comm.ranks.map(() => call.count);
  const ofPart = (part: Question): { plan: Plan; time: () => MachineTime | undefined } => {
    const reduce = planQuestionOf("reduce", part, comm);
    return { plan: planOf(planner, reduce), time: () => timeOf(reduce) };
  };
  return explainReduces(question, counts, ofPart, link ?? linkOf(), rank);
}

/** The reason to refuse a call in symmetric memory; `undefined` when it is accepted. */
export function symmetricRefusal(
  planner: Planner,
  question: Question,
  comm: CommInfo,
): string | undefined {
  const { collective, symmetric = false } = question;
  if (symmetric === false || questionPlace(question) === undefined) return undefined;
  if (!isBuilt(collective)) return undefined;
  return planOf(planner, planQuestionOf(collective, question, comm)).refusal;
}

/** True when the ranks of a communicator keep the order of their devices. */
export function isOrdered({ ranks }: CommInfo): boolean {
  return ranks.every((rank, i) => i === 0 || rank > (ranks[i - 1] as number));
}

function planQuestionOf(
  collective: SpecifiedCollective,
  question: Question,
  comm: CommInfo,
): PlanQuestion {
  const { dtype, count = 0, root = 0 } = question;
  const op = specifications[collective].reduces ? (question.op ?? "sum") : undefined;
  const place = questionPlace(question);
  const ranks = comm.ranks.length;
  return { collective, ranks, root, dtype, op, count, ordered: isOrdered(comm), place };
}

/** The question to a planner about a call; splits, recordings and messages are not planned. */
export function planQuestion(call: RankCall, comm: CommInfo): PlanQuestion {
  const { collective, dtype, op, count, root } = call;
  return {
    collective: collective as SpecifiedCollective,
    ranks: comm.ranks.length,
    root,
    dtype,
    op,
    count,
    ordered: isOrdered(comm),
    place: symmetricPlace(call),
  };
}

/** The reduce of one block of a reduce-scatter, to the rank of that block. */
export function reduceOfBlock(call: RankCall, root: number, count: number): RankCall {
  const offset = call.sendOffsets?.[root] ?? 0;
  return {
    ...call,
    collective: "reduce",
    root,
    count,
    send: call.send?.subarray(offset, offset + count),
    recv: call.rank === root ? call.recv : undefined,
    sendCounts: undefined,
    sendOffsets: undefined,
  };
}
