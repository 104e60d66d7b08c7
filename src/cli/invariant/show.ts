/**
 * `twinccl invariant --backend`: the calls of every answer made on a backend.
 *
 * A dependence is shown by its two calls with its contributions: the element's bits. Invariance is shown by calls of drawn sizes
 * and contents: every element has the bits of the promised fold.
 */
import {
  type Answer,
  type Dependence,
  type DifferentFold,
  type Invariance,
  type LibraryName,
  type NcclVariables,
  ncclEnvironment,
  type TopologyOption,
} from "../../algorithms/index.ts";
import { withChannels } from "../../algorithms/invariance/invariance.ts";
import { settingOf } from "../../algorithms/nccl/environment.ts";
import { mix32 } from "../../api/bits.ts";
import { countText } from "../../api/error-text.ts";
import {
  type Backend,
  type Communicator,
  connect,
  createWorld,
  type NamedReduceOp,
} from "../../api/index.ts";
import type { NcclBackend } from "../../backends/nccl/index.ts";
import type { GoldenCollective } from "../../golden/case.ts";
import { namedBackend } from "../backends.ts";
import type { BackendTable, Context } from "../context.ts";
import { askLauncher, reportToLauncher } from "../launch/job.ts";
import { startRanks } from "../placement.ts";
import {
  type PlanText,
  type PromisedOn,
  planTextOf,
  type ShownCall,
  type ShownPart,
  shownPart,
} from "./shown-calls.ts";

/** The backend of the calls, and the machine that their plans follow. */
export interface ShownOn extends PromisedOn {
  readonly backend: "sim" | "tcp" | "nccl";
  /** True if each rank is a process. */
  readonly launched: boolean;
  readonly like: LibraryName;
  readonly option: TopologyOption | undefined;
}

/** The question of the answers, in the form of calls. */
export interface ShownQuestion {
  readonly collective: GoldenCollective;
  readonly ranks: readonly number[];
  readonly dtype: ShownCall["dtype"];
  readonly op: NamedReduceOp;
  readonly root: number | undefined;
  readonly variables: NcclVariables;
  /** Number of drawn sizes. */
  readonly sizes: number;
  readonly seed: number;
}

/** An answer that depends, with the bits of its element in both calls. */
export interface ShownAnswer {
  readonly question: Dependence;
  readonly predicted: readonly [string, string];
  readonly found: readonly [string | undefined, string | undefined];
}

/** All calls of drawn sizes. */
export interface ShownSizes {
  readonly drawn: number;
  /** Under every number of ranks, and under other settings that are proved to fold alike. */
  readonly calls: number;
  readonly elements: number;
  readonly differing: number;
  /** The first difference, in words. */
  readonly first?: string | undefined;
}

/** The findings. */
export interface Shown {
  readonly backend: string;
  readonly answers: readonly ShownAnswer[];
  /** Answers without calls, with the reason. */
  readonly omitted: readonly { readonly question: Dependence; readonly reason: string }[];
  readonly sizes: ShownSizes;
  /** Calls with a plan that the library logged, and those as predicted; none where it logs none. */
  readonly plans?: { readonly logged: number; readonly predicted: number } | undefined;
  readonly isAsPredicted: boolean;
}

/** Makes the calls of all answers; a number is the exit status of ranks that have ended before. */
export async function show(
  question: ShownQuestion,
  found: Invariance,
  on: ShownOn,
  args: readonly string[],
  context: Context,
): Promise<Shown | number> {
  const pairs = found.answers.flatMap((answer) => pairOf(question, answer));
  const drawn = drawnCalls(question, found);
  const calls = [...pairs.flatMap(({ calls: two }) => two), ...drawn];
  const parts: ShownPart[][] = calls.map(() => []);
  const add: AddPart = (index, rank, part) => {
    (parts[index] as ShownPart[])[rank] = part;
  };
  context.progress(`invariant: ${countText(calls.length, "call")} on ${on.backend}`);
  const status = on.launched
    ? await inProcesses(calls, on, add, args, context)
    : await inThisProcess(calls, on, add, await context.backends());
  if (status !== 0) return status;
  const answers = pairs.map(({ answer, predicted }, at): ShownAnswer => {
    const bits = [0, 1].map((side) => parts[2 * at + side]?.find((part) => part?.bits)?.bits);
    return { question: answer, predicted, found: [bits[0], bits[1]] };
  });
  const sizes = { drawn: question.sizes, ...sizesOf(drawn, parts.slice(2 * pairs.length)) };
  const plans = plansOf(calls, parts, on);
  const shown = new Set(answers.map((each) => each.question));
  const omitted = found.answers
    .filter(({ question: name, isInvariant }) => !isInvariant && !shown.has(name))
    .map(({ question: name, witness }) => ({ question: name, reason: reasonOf(name, witness) }));
  const isAsPredicted =
    answers.every((each) => each.predicted.every((bits, at) => bits === each.found[at])) &&
    sizes.differing === 0 &&
    plans?.logged === plans?.predicted;
  return { backend: on.backend, answers, omitted, sizes, plans, isAsPredicted };
}

function reasonOf(question: Dependence, witness: Answer["witness"]): string {
  if (question === "hosts" || question === "version") return "one job has one machine and library";
  return witness === undefined ? "no contributions with different bits are known" : "";
}

/** The two calls of a dependence with known contributions. */
function pairOf(
  question: ShownQuestion,
  { question: answer, folds, witness }: Answer,
): { answer: Dependence; predicted: readonly [string, string]; calls: ShownCall[] }[] {
  if (folds === undefined || witness === undefined) return [];
  if (answer === "hosts" || answer === "version") return [];
  const { contributions, results } = witness;
  const callOf = ({ ranks, count, variables, block, element }: DifferentFold): ShownCall => ({
    ...callFacts(question),
    ...{ ranks, count, variables, contributions, at: { block, element } },
    promise: { variables },
  });
  return [{ answer, predicted: results, calls: folds.map(callOf) }];
}

function callFacts({ collective, dtype, op, root }: ShownQuestion) {
  return { collective, dtype, op, root };
}

/** Calls of drawn sizes, and the same under other settings that are proved to fold alike. */
function drawnCalls(question: ShownQuestion, found: Invariance): ShownCall[] {
  const { variables, seed } = question;
  const dice = (key: number): number => (mix32(mix32(seed) + key) >>> 0) / 2 ** 32;
  const isProved = (name: Dependence): boolean =>
    found.answers.some((each) => each.question === name && each.isInvariant);
  const { from, to, row } = found.counts;
  return Array.from({ length: question.sizes }, (_, at) => {
    const size = from * (to / from) ** dice(3 * at);
    const count =
      at === 0 ? from : at === 1 ? to : row * Math.max(from / row, Math.round(size / row));
    return question.ranks.flatMap((ranks): ShownCall[] => {
      const promise = { orders: ordersOf(found, ranks, count), variables };
      const call = { ...callFacts(question), ranks, count, variables, promise };
      const channels = 1 + Math.floor(32 * dice(3 * at + 1));
      const protocol = dice(3 * at + 2) < 0.5 ? "LL" : "Simple";
      const fewer = question.ranks[question.ranks.indexOf(ranks) - 1];
      const padded = fewer === undefined ? undefined : ordersOf(found, fewer, count);
      return [
        call,
        ...(isProved("channels")
          ? [{ ...call, variables: withChannels(variables, channels) }]
          : []),
        ...(isProved("protocol") && isAllowed(question, protocol)
          ? [{ ...call, variables: { ...variables, NCCL_PROTO: protocol } }]
          : []),
        ...(isProved("ranks") && padded !== undefined
          ? [{ ...call, present: fewer, promise: { orders: padded, variables } }]
          : []),
      ];
    });
  }).flat();
}

/** True if the variables leave an algorithm with this protocol; PAT has one. */
function isAllowed({ collective, variables }: ShownQuestion, protocol: string): boolean {
  const { algorithm } = ncclEnvironment(variables).forced(collective);
  return protocol === "Simple" || `${algorithm}` !== "PAT";
}

function ordersOf(found: Invariance, ranks: number, count: number) {
  return found.ranges.find(
    (range) => range.ranks === ranks && range.from <= count && count <= range.to,
  )?.folds;
}

function sizesOf(
  calls: readonly ShownCall[],
  parts: readonly (readonly ShownPart[])[],
): Omit<ShownSizes, "drawn"> {
  let [elements, differing] = [0, 0];
  let first: string | undefined;
  for (const [at, { count, ranks, variables }] of calls.entries()) {
    const own = parts[at] ?? [];
    const other = own.findIndex((part) => part.hash !== own[0]?.hash);
    const isSplit = calls[at]?.collective === "allReduce" && other > 0;
    for (const part of own) {
      elements += part.elements;
      differing += part.differing;
    }
    if (isSplit) differing += count;
    const text = own.find((part) => part.first !== undefined)?.first;
    const split = isSplit ? `ranks 0 and ${other} have different results` : undefined;
    const why = text ?? split;
    if (first === undefined && why !== undefined) {
      const under = Object.entries(variables).map(([name, value]) => `${name}=${value}`);
      first = `${countText(ranks, "rank")}, ${[`count ${count}`, ...under].join(", ")}: ${why}`;
    }
  }
  return { calls: calls.length, elements, differing, first };
}

function plansOf(
  calls: readonly ShownCall[],
  parts: readonly (readonly ShownPart[])[],
  on: PromisedOn,
): Shown["plans"] {
  let [logged, predicted] = [0, 0];
  for (const [at, call] of calls.entries()) {
    const plan = parts[at]?.[0]?.plan;
    if (plan === undefined) continue;
    logged++;
    if (plan === planTextOf(call, on)) predicted++;
  }
  return logged === 0 ? undefined : { logged, predicted };
}

type AddPart = (index: number, rank: number, part: ShownPart) => void;

/** Indices of calls that one backend makes on one world, in their order. */
function groupsOf(calls: readonly ShownCall[], keyOf: (call: ShownCall) => unknown): number[][] {
  const groups = new Map<string, number[]>();
  for (const [index, call] of calls.entries()) {
    const key = JSON.stringify(keyOf(call));
    groups.set(key, [...(groups.get(key) ?? []), index]);
  }
  return [...groups.values()];
}

/** The backend under variables. NCCL gets those that a pin cannot carry from the environment. */
async function backendOf(
  table: BackendTable,
  variables: NcclVariables,
  on: ShownOn,
): Promise<Backend> {
  const { backend, like, option } = on;
  if (backend !== "nccl") {
    return namedBackend(table, backend, { like, topology: option, plan: { variables } });
  }
  const isPinned = (name: string): boolean =>
    settingOf(name) !== undefined || name === "NCCL_ALGO" || name === "NCCL_PROTO";
  const all = Object.entries(variables);
  Object.assign(process.env, Object.fromEntries(all.filter(([name]) => !isPinned(name))));
  const pinned = Object.fromEntries(all.filter(([name]) => isPinned(name)));
  return namedBackend(table, backend, { plan: { variables: pinned }, readPlan: true });
}

/** One rank's part of a call, with the plan that NCCL has logged for it. */
async function partOf(
  comm: Communicator,
  call: ShownCall,
  on: ShownOn,
  backend: Backend,
): Promise<ShownPart> {
  const part = await shownPart(comm, call, on);
  const log = (backend as Partial<NcclBackend>).plans;
  if (log === undefined || comm.rank > 0) return part;
  const plan = log.take().at(-1);
  return { ...part, plan: plan && textOfPlan(plan) };
}

function textOfPlan({
  algorithm,
  protocol,
  channels,
}: {
  algorithm: string;
  protocol: string;
  channels: number;
}): PlanText {
  return `${algorithm} ${protocol} ${channels}`;
}

async function inThisProcess(
  calls: readonly ShownCall[],
  on: ShownOn,
  add: AddPart,
  table: BackendTable,
): Promise<0> {
  for (const group of groupsOf(calls, ({ ranks, variables }) => [ranks, variables])) {
    const { ranks, variables } = calls[group[0] as number] as ShownCall;
    const backend = await backendOf(table, variables, on);
    const world = await createWorld({ backend, size: ranks, name: "invariant" });
    try {
      for (const index of group) {
        const call = calls[index] as ShownCall;
        const parts = await world.run((comm) => partOf(comm, call, on, backend));
        for (const [rank, part] of parts.entries()) add(index, rank, part);
      }
    } finally {
      await world.close();
    }
  }
  return 0;
}

type RankMessage = { readonly ready: true } | { readonly index: number; readonly part: ShownPart };

/** A job for each number of ranks; a node of the machine is an imitated host. */
async function inProcesses(
  calls: readonly ShownCall[],
  on: ShownOn,
  add: AddPart,
  args: readonly string[],
  context: Context,
): Promise<number> {
  for (const places of groupsOf(calls, ({ ranks }) => ranks)) {
    const own = places.map((place) => calls[place] as ShownCall);
    const { ranks } = own[0] as ShownCall;
    const status = await startRanks(
      {
        ...{ name: "invariant", args, size: ranks, hosts: on.topology(ranks).nodes },
        onMessage: (rank, message, reply) => {
          const sent = message as RankMessage;
          if ("ready" in sent) reply({ calls: own });
          else add(places[sent.index] as number, rank, sent.part);
        },
      },
      context,
    );
    if (status !== 0) return status;
  }
  return 0;
}

/** One rank: makes the calls that the launcher names, and reports its parts. A failed rank leaves the job by the end of its process. */
export async function showAsRank(on: ShownOn, table: BackendTable): Promise<void> {
  const { calls } = (await askLauncher({ ready: true })) as {
    readonly calls: readonly ShownCall[];
  };
  for (const group of groupsOf(calls, ({ variables }) => variables)) {
    const { variables } = calls[group[0] as number] as ShownCall;
    const backend = await backendOf(table, variables, on);
    const comm = await connect({ backend, name: "invariant", timeoutMs: 120_000 });
    for (const index of group) {
      const part = await partOf(comm, calls[index] as ShownCall, on, backend);
      await reportToLauncher({ index, part } satisfies RankMessage);
    }
    await comm.close();
  }
}
