/**
 * Who plans the calls of a world: NCCL's twin where one is followed, the catalogue for everything else.
 *
 * A twin is followed when `like` names it, and without a name in worlds that its machine has enough devices for. The
 * plan says what it claims, and why it claims nothing.
 */
import {
  type CommInfo,
  type Explanation,
  InvalidArgumentError,
  type Question,
  questionPlace,
  type SpecifiedCollective,
  specifications,
  UnsupportedError,
} from "../../api/index.ts";
import type { AlgorithmChoice } from "../catalogue.ts";
import {
  assertRingSize,
  graphTopology,
  type NcclPin,
  ncclVersions,
  resolvePin,
  type Topology,
  topologies,
  withRing,
} from "../nccl/index.ts";
import { CataloguePlanner, checkChoice } from "./catalogue-planner.ts";
import { explainPlan } from "./explain.ts";
import { explainReduces } from "./explain-reduces.ts";
import type { Link } from "./link.ts";
import { isBuilt, type Plan, type Planner, type PlanQuestion } from "./plan.ts";
import { TwinPlanner } from "./twin.ts";

/** What decides the plans. */
export interface PlanOptions {
  readonly algorithms?: AlgorithmChoice | undefined;
  readonly like?: "nccl-2.28" | undefined;
  readonly topology?: keyof typeof topologies | { readonly xml: string } | undefined;
  readonly nccl?: NcclPin | undefined;
}

/** What is followed when nothing is named. */
const unnamed = { version: "2.28", topology: "h200x8", ranks: 8 } as const;

/** Gives a world of so many ranks its planner; refuses options that make no sense, and later worlds too large. */
export function plannersOf(options: PlanOptions): (size: number) => Planner {
  const { algorithms = {}, like } = options;
  checkChoice(algorithms);
  if (like === undefined) assertUnnamed(options);
  const { algorithm, protocol, rings, ...settings } = resolvePin(options.nccl);
  const topology = pinned(topologyOf(options), rings);
  const version = like === undefined ? unnamed.version : versionOf(like);
  const forced = { algorithm, protocol };
  const twin = sharedTwin(options, version, () => {
    return new TwinPlanner({ version, topology, settings, forced });
  });
  const catalogue = new CataloguePlanner(algorithms);
  return (size) => {
    if (like === undefined && size > unnamed.ranks) {
      const why = `${size} ranks are more than the ${unnamed.ranks} devices of ${unnamed.topology}`;
      return { of: (question) => catalogue.of(question, why), reducesEachRoot: () => false };
    }
    assertRingSize({ rings }, size);
    // A named machine has so many devices and no more.
    topology(size);
    return new WorldPlanner(algorithms, twin, catalogue);
  };
}

/** The plans of a world on a machine that is not known, by the catalogue: nothing is claimed of them, and `why` says why. */
export function unclaimedPlanner(why: string): Planner {
  const catalogue = new CataloguePlanner({});
  return { of: (question) => catalogue.of(question, why, true), reducesEachRoot: () => false };
}

/** The twins of machines by name, as NCCL is set up by default. */
const twins = new Map<string, TwinPlanner>();

/** Plans of a machine that has a name are the same in every world: they are made once, and the planner bounds their number. */
function sharedTwin(
  { topology = unnamed.topology, nccl }: PlanOptions,
  version: string,
  make: () => TwinPlanner,
): TwinPlanner {
  if (typeof topology !== "string" || nccl !== undefined) return make();
  const key = `${version} ${topology}`;
  const known = twins.get(key) ?? make();
  twins.set(key, known);
  return known;
}

/** Follows a twin where it has plans. */
class WorldPlanner implements Planner {
  readonly #algorithms: AlgorithmChoice;
  readonly #twin: TwinPlanner;
  readonly #catalogue: CataloguePlanner;

  constructor(algorithms: AlgorithmChoice, twin: TwinPlanner, catalogue: CataloguePlanner) {
    this.#algorithms = algorithms;
    this.#twin = twin;
    this.#catalogue = catalogue;
  }

  of(question: PlanQuestion): Plan {
    const chosen = this.#algorithms[question.collective];
    if (chosen !== undefined) {
      const how = typeof chosen === "string" ? "was chosen by name" : "is the caller's own";
      return this.#catalogue.of(question, `its algorithm ${how}`);
    }
    if (!question.ordered) return this.#catalogue.of(question, disorder, true);
    return this.#twin.of(question) ?? this.#catalogue.of(question, "no dtype was given");
  }

  reducesEachRoot({ collective, ordered }: PlanQuestion): boolean {
    return collective === "reduceScatterv" && this.#algorithms[collective] === undefined && ordered;
  }
}

const disorder =
  "the ranks are not in the order of their devices, and the rings among them were not read";

function assertUnnamed({ topology, nccl }: PlanOptions): void {
  if (topology === undefined && nccl === undefined) return;
  throw new InvalidArgumentError(
    { headline: "sim: topology and nccl belong to like", hint: 'pass like: "nccl-2.28" too' },
    { field: "like" },
  );
}

function topologyOf({ topology = unnamed.topology }: PlanOptions): (ranks: number) => Topology {
  if (typeof topology === "object" && typeof topology?.xml === "string") {
    return graphTopology(topology.xml);
  }
  const name: unknown = topology;
  if (typeof name === "string" && isNamed(name)) return topologies[name];
  const found = typeof name === "string" ? `"${name}"` : typeof name;
  throw new InvalidArgumentError(
    {
      headline: `sim: topology: found ${found}, needs the name of a machine that is known`,
      hint: `names are ${Object.keys(topologies).join(", ")}; or pass { xml } with the text of a graph file of NCCL`,
    },
    { field: "topology" },
  );
}

/** With the rings of the world; the communicators of a split have those that NCCL finds for them. */
function pinned(found: (ranks: number) => Topology, rings: NcclPin["rings"]) {
  if (rings === undefined) return found;
  if ("xml" in rings) return graphTopology(rings.xml);
  return (ranks: number): Topology =>
    ranks === rings.length ? withRing(found(ranks), rings) : found(ranks);
}

function isNamed(name: string): name is keyof typeof topologies {
  return Object.hasOwn(topologies, name);
}

function versionOf(like: unknown): string {
  const name = String(like);
  if (!name.startsWith("nccl-")) {
    throw new InvalidArgumentError(
      { headline: `sim: like: found ${name}, which is not known`, hint: 'write like: "nccl-2.28"' },
      { field: "like" },
    );
  }
  const version = name.slice("nccl-".length);
  if ((ncclVersions as readonly string[]).includes(version)) return version;
  throw new UnsupportedError(
    {
      headline: `sim: like: the plans of NCCL ${version} are not known`,
      hint: `known versions: ${ncclVersions.join(", ")}; others are not guessed`,
    },
    { field: "like" },
  );
}

// What a backend answers about calls from its plans alone: which plan a call takes, its explanation, why it is refused.

/** The plan of a call; a root counts only where the collective has one. */
export function planOf(planner: Planner, question: PlanQuestion): Plan {
  const { rooted } = specifications[question.collective];
  return planner.of(rooted ? question : { ...question, root: -1 });
}

/** Explains a call on a communicator: predicted, nothing runs. */
export function explainCall(
  planner: Planner,
  link: Link,
  question: Question,
  comm: CommInfo,
): Explanation {
  const { collective } = question;
  if (!isBuilt(collective)) {
    throw new UnsupportedError({
      headline: `explain: ${collective} has no plan of its own`,
      hint: "messages go to their peers as they are; of groups and recordings ask about each collective call",
    });
  }
  const asked = askedOf(collective, question, comm);
  if (!planner.reducesEachRoot(asked)) return explainPlan(planOf(planner, asked), question, link);
  const counts = question.counts?.[0] ?? comm.ranks.map(() => asked.count);
  const ofPart = (part: Question): Plan => planOf(planner, askedOf("reduce", part, comm));
  return explainReduces(question, counts, ofPart, link);
}

/** Why a call in symmetric memory is refused; `undefined` when it is not. */
export function symmetricRefusal(
  planner: Planner,
  question: Question,
  comm: CommInfo,
): string | undefined {
  const { collective } = question;
  if (!isBuilt(collective) || questionPlace(question) === undefined) return undefined;
  return planOf(planner, askedOf(collective, question, comm)).refusal;
}

/** True when the ranks of a communicator keep the order of the devices they run on. */
export function isOrdered({ ranks }: CommInfo): boolean {
  return ranks.every((rank, i) => i === 0 || rank > (ranks[i - 1] as number));
}

function askedOf(
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
