/**
 * The planner of NCCL: plans that follow NCCL channel by channel and chunk by chunk, so that calls give NCCL's bits.
 *
 * It has plans for the collectives with known rules; the others use the catalogue's plans.
 */
import { countText } from "../../api/error-text.ts";
import { bytesOf, type DType, InvalidArgumentError, type ReduceOp } from "../../api/index.ts";
import type { FusedPlan } from "../fuse.ts";
import type { CallShape, Layout } from "../layout.ts";
import {
  choiceOfCall,
  copiedGather,
  fastestPath,
  fastestPathText,
  isNcclCollective,
  type Library,
  type NcclEnvironment,
  type NcclPlan,
  type NcclSettings,
  ncclFused,
  ncclLayout,
  ncclProgram,
  type PlanFolds,
  planCall,
  planFolds,
  planOutline,
  programName,
  type Topology,
  undefinedReason,
} from "../nccl/index.ts";
import type { Program } from "../program.ts";
import type { Plan, PlanQuestion } from "./plan.ts";

/** The library, machine and settings that the plans follow. */
export interface NcclPlannerOptions {
  readonly library: Library;
  /** The topology of a number of ranks. Throws for more than there are devices. */
  readonly topology: (ranks: number) => Topology;
  readonly settings: NcclSettings;
  /** The algorithms and protocols that variables force; `undefined` without variables. */
  readonly forced: NcclEnvironment["forced"] | undefined;
}

/** Plans cached; the oldest is evicted first. */
const maxPlans = 256;

/** Plans depend on the offset of a buffer in symmetric memory modulo these bytes. */
const lineBytes = 16;

/** Caches plans of NCCL. */
export class NcclPlanner {
  readonly #options: NcclPlannerOptions;
  readonly #plans = new Map<string, NcclCallPlan>();

  constructor(options: NcclPlannerOptions) {
    this.#options = options;
  }

  /** The facts of NCCL's plan of a call; `undefined` where it has none of its own. */
  factsOf(question: PlanQuestion): NcclPlan | undefined {
    return this.of(question)?.facts;
  }

  /** NCCL's plan of a call; `undefined` where it has none of its own. */
  of(question: PlanQuestion): NcclCallPlan | undefined {
    const { collective, ranks, root, dtype, op, count, place } = question;
    if (!isNcclCollective(collective) || dtype === undefined) return undefined;
    // The plan of a pre-multiplied sum does not depend on its scalar.
    const operator = typeof op === "object" ? "preMul" : op;
    const symmetric = place && { send: place.send % lineBytes, recv: place.recv % lineBytes };
    const at = symmetric === undefined ? "" : `/${symmetric.send}/${symmetric.recv}`;
    const key = `${collective}/${ranks}/${root}/${dtype}/${operator}/${count}${at}`;
    const found = this.#plans.get(key);
    if (found !== undefined) return found;
    const { library, topology, settings, forced } = this.#options;
    const request = {
      version: library.version,
      topology: topology(ranks),
      collective,
      dtype,
      op,
      count,
      settings,
      forced: forced?.(collective),
      symmetric,
    };
    const plan = new NcclCallPlan(
      planCall({ ...request, root: root < 0 ? undefined : root }),
      library.wheel,
      symmetric === undefined ? undefined : settings,
    );
    const oldest = this.#plans.keys().next();
    if (this.#plans.size >= maxPlans && !oldest.done) this.#plans.delete(oldest.value);
    this.#plans.set(key, plan);
    return plan;
  }
}

class NcclCallPlan implements Plan {
  readonly name: string;
  readonly protocol: string | undefined;
  readonly unclaimed = false;
  readonly ranks: number;
  readonly channels: number;
  readonly cost = undefined;
  readonly facts: NcclPlan;
  readonly #wheel: string | undefined;
  /**
   * True for an all-gather in symmetric memory, whose kernel copies the blocks of the Ring: the plan has the Ring's steps, and the
   * kernel's time.
   */
  readonly #isCopied: boolean;
  #program: Program | undefined;
  #fused: FusedPlan | undefined;
  #layout: Layout | undefined;

  /** `symmetric`: the settings of a call in symmetric memory. */
  constructor(plan: NcclPlan, wheel: string | undefined, symmetric: NcclSettings | undefined) {
    this.facts = plan;
    this.#wheel = wheel;
    const copy = symmetric && copiedGather(plan, symmetric);
    this.#isCopied = copy !== undefined;
    this.name = copy === undefined ? programName(plan) : choiceOfCall(copy).name;
    this.protocol = copy === undefined ? plan.protocol : copy.kernel;
    this.ranks = plan.ranks;
    this.channels = plan.channels;
  }

  // Texts are for explanations and errors, so most plans need none of them.

  get summary(): string {
    const { version, topology, channels } = this.facts;
    const of = this.#wheel === undefined ? "" : `, of ${this.#wheel},`;
    // A call without elements takes no channel.
    const over = channels === 0 ? "" : ` over ${countText(channels, "channel")}`;
    const ring = `the same blocks as ${programName(this.facts)}${over}`;
    const how = this.#isCopied
      ? `; in symmetric memory its kernel copies ${ring}`
      : over && `,${over}`;
    return `as NCCL ${version}${of} does it on ${topology}${how}`;
  }

  get claim(): string {
    const { refusal } = this;
    if (refusal !== undefined) return `no call: ${refusal}`;
    const { version, topology, evidence } = this.facts;
    const source = evidence === "source" ? ": from the source, not measured" : "";
    return `the same bits as NCCL ${version} on ${topology} without in-switch reduction${source}`;
  }

  /** Sizes count as nccl-tests counts them: with the blocks of all ranks. */
  get fastest(): string | undefined {
    const { collective, ranks, nodes, count, dtype } = this.facts;
    if (nodes > 1) return undefined;
    const blocks = collective === "allReduce" ? 1 : ranks;
    const path = fastestPath(collective, ranks, blocks * count * bytesOf(dtype));
    return path && fastestPathText(path);
  }

  get refusal(): string | undefined {
    return undefinedReason(this.facts);
  }

  get outline(): readonly string[] {
    return planOutline(this.facts);
  }

  get program(): Program {
    this.#program ??= ncclProgram(this.facts);
    return this.#program;
  }

  get fused(): FusedPlan {
    this.#fused ??= ncclFused(this.facts);
    return this.#fused;
  }

  /** A plan is for one count, so it has one layout. */
  layout(shape: CallShape): Layout {
    if (shape.blocks !== undefined) {
      throw new InvalidArgumentError({ headline: `${this.name}: blocks of different lengths` });
    }
    this.#layout ??= ncclLayout(this.facts);
    return this.#layout;
  }

  folds(_dtype: DType, op: ReduceOp): PlanFolds {
    return planFolds(this.facts, op);
  }
}
