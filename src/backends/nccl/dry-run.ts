/** The backend's answers about calls without running them. */
import {
  type LibraryName,
  type Planner,
  plannersOf,
  type ResolvedPin,
} from "../../algorithms/index.ts";
import {
  explainCall,
  isOrdered,
  symmetricRefusal,
  unclaimedPlanner,
} from "../../algorithms/plans/index.ts";
import { type CommInfo, questionPlace, type RankCall } from "../../api/backend-entry.ts";
import {
  bytesOf,
  type DeviceBuffer,
  type DType,
  type Explanation,
  type Question,
  type SpecifiedCollective,
  specifications,
  UnsupportedError,
} from "../../api/index.ts";
import { rankCall } from "../../api/ledger/posting.ts";
import { runAll } from "../../api/run-all.ts";
import type { NcclCommunicator } from "./calls/communicator.ts";
import { groupsOf, type NcclCallArgs } from "./calls/nccl-steps.ts";
import { isFloat8 } from "./device/nccl-types.ts";
import { type BusAddress, inBusOrder } from "./discovery/bus-order.ts";
import {
  hasLoadDefect,
  knowsSymmetricKernels,
  misalignment,
  otherMachine,
  plannedLibrary,
} from "./discovery/known-versions.ts";
import { type Libraries, versionText } from "./discovery/libraries.ts";
import { located } from "./result/errors.ts";

/** The parts that answers depend on. */
export interface DryRunFacts {
  readonly libraries: Libraries;
  /** Compute capabilities of the GPUs, by rank. */
  readonly capabilities: readonly number[];
  /** The GPUs of all ranks; left out where they are unknown. */
  readonly places?: readonly BusAddress[] | undefined;
  /** The pinned plan of every communicator. */
  readonly pin?: ResolvedPin | undefined;
  /** Why NCCL does not take its usual plans in this process; left out where it does. */
  readonly unusual?: string | undefined;
}

/** Answers for one world. */
export class DryRun {
  readonly #libraries: Libraries;
  readonly #capabilities: readonly number[];
  readonly #size: number;
  readonly #pin: ResolvedPin;
  readonly #places: readonly BusAddress[] | undefined;
  /** Why nothing is claimed about NCCL's plans. */
  readonly #unclaimed: string | undefined;
  #planner: Planner | undefined;

  constructor({ libraries, capabilities, places, pin = {}, unusual }: DryRunFacts, size: number) {
    this.#libraries = libraries;
    this.#capabilities = capabilities;
    this.#size = size;
    this.#pin = pin;
    this.#places = places;
    this.#unclaimed = unusual ?? otherMachine(capabilities, size);
  }

  /** Why a call cannot be made; `undefined` when it can. */
  refusal(question: Question, comm: CommInfo): string | undefined {
    const { dtype } = question;
    if (dtype === undefined) return undefined;
    const { ncclVersion } = this.#libraries;
    const reason =
      dtypeRefusal(question, ncclVersion) ??
      deviceRefusal(question, comm, this.#capabilities) ??
      singleRankRefusal(question, comm.ranks.length);
    // Only kernels of symmetric memory may be refused further: no planner is built for other calls.
    if (reason !== undefined || questionPlace(question) === undefined) return reason;
    if (!hasLoadDefect(ncclVersion)) return undefined;
    const found = inBusOrder(comm, this.#places);
    // The kernel, and so its load defect, is known only with a known plan; elsewhere it may be any kernel.
    return knowsSymmetricKernels(ncclVersion) && this.#unclaimed === undefined && isOrdered(found)
      ? symmetricRefusal(this.#plans(), question, found)
      : misalignment(question, ncclVersion);
  }

  /**
   * NCCL's plan on the known machine, for ranks in the order of their GPUs on the bus; otherwise a generic plan without a
   * claim.
   */
  explain(question: Question, comm: CommInfo, rank: number): Explanation {
    return explainCall(this.#plans(), undefined, question, inBusOrder(comm, this.#places), rank);
  }

  /** NCCL's own estimate, in nanoseconds; nothing runs. That of one rank is 0. */
  estimateNs(question: Question, comm: NcclCommunicator): number {
    const { nccl } = this.#libraries;
    const calls = comm.info.local.map((rank) => placeholderCall(question, rank, comm.size));
    // NCCL launches a call of one rank when it is made, also inside of a simulated group, on memory that is not there.
    if (comm.size === 1) return 0;
    const parts: NcclCallArgs[] = [];
    let rank: number | undefined;
    try {
      for (const call of calls) {
        rank = call.rank;
        parts.push(comm.callArgs(call));
      }
      rank = undefined;
      let us = 0;
      for (const group of groupsOf(parts, nccl.hasAllToAll)) {
        us += nccl.estimateUs(() => {
          for (const call of group) nccl.sequence([[call]]).run();
        });
      }
      return 1000 * us;
    } catch (error) {
      throw located(error, { rank, size: comm.size, comm: comm.info.name });
    } finally {
      runAll(
        parts.map(
          ({ call, op }) =>
            () =>
              comm.destroyOp(call, op),
        ),
      );
    }
  }

  /** Plans of versions that are not known are not guessed. */
  #plans(): Planner {
    const { ncclVersion } = this.#libraries;
    const library = plannedLibrary(ncclVersion);
    if (library === undefined) {
      throw new UnsupportedError({
        headline: `explain: the plans of NCCL ${versionText(ncclVersion)} are not known`,
        hint: "world.estimate(call) asks NCCL for its time",
      });
    }
    this.#planner ??=
      this.#unclaimed === undefined ? this.#knownPlans(library) : unclaimedPlanner(this.#unclaimed);
    return this.#planner;
  }

  #knownPlans(like: LibraryName): Planner {
    const isPinned = Object.values(this.#pin).some((value) => value !== undefined);
    return plannersOf({ like, ...(isPinned && { plan: this.#pin }) })(this.#size);
  }
}

/** Version codes of NCCL that introduced dtypes. */
const dtypeSince: Partial<Record<DType, number>> = { float8e4m3: 22400, float8e5m2: 22400 };

/** Least compute capability for collectives of a dtype; messages are plain bytes on every device. */
const dtypeCapability: Partial<Record<DType, number>> = { float8e4m3: 9, float8e5m2: 9 };

const messages: ReadonlySet<string> = new Set(["send", "recv", "sendRecv"]);

/** Reason why a dtype is not supported by this library; `undefined` if supported. */
function dtypeRefusal({ dtype }: Question, ncclVersion: number): string | undefined {
  const since = dtype && dtypeSince[dtype];
  if (since === undefined || ncclVersion >= since) return undefined;
  return `NCCL has ${dtype} since ${Math.floor(since / 10000)}.${Math.floor(since / 100) % 100}`;
}

/** Reason why a dtype is not supported by a GPU of a communicator, on all its ranks alike; `undefined` if supported. */
function deviceRefusal(
  { collective, dtype }: Question,
  { ranks }: CommInfo,
  capabilities: readonly number[],
): string | undefined {
  const needs = dtype && dtypeCapability[dtype];
  if (needs === undefined || messages.has(collective)) return undefined;
  const least = Math.min(...ranks.map((rank) => capabilities[rank] as number));
  if (least >= needs) return undefined;
  return `${dtype} needs GPUs of compute capability ${needs}.0 or newer, found ${least.toFixed(1)}`;
}

/** Reason why a call of one rank is not supported: NCCL has no kernels of it for one rank. */
function singleRankRefusal({ dtype, op }: Question, size: number): string | undefined {
  if (size !== 1 || typeof op !== "object" || !isFloat8(dtype)) return undefined;
  return `NCCL has no pre-multiplied sum of ${dtype} over one rank`;
}

/** Collectives that NCCL estimates. */
const estimated = new Set(["allReduce", "reduce", "broadcast", "allGather", "reduceScatter"]);

/** Addresses that look like apart and aligned device memory. */
const sendAddress = 0x7f00_0000_0000n;
const recvAddress = 0x7e00_0000_0000n;

/**
 * The call of one rank.
 *
 * @throws UnsupportedError for a call that NCCL does not estimate: messages, and collectives made of them.
 */
function placeholderCall(question: Question, rank: number, ranks: number): RankCall {
  const { collective, dtype = "float32", count = 0, root = 0, op = "sum" } = question;
  if (!estimated.has(collective)) {
    throw new UnsupportedError({
      headline: `estimate: NCCL estimates ${[...estimated].join(", ")}, not ${collective}`,
      hint: "explain predicts every call",
    });
  }
  const spec = specifications[collective as SpecifiedCollective];
  const blocks = Math.max(spec.inBlocks(ranks, rank, root), spec.outBlocks(ranks, rank, root));
  const length = count * blocks;
  const buffer = (ptr: bigint): DeviceBuffer =>
    ({ ptr, dtype, length, byteLength: length * bytesOf(dtype) }) as DeviceBuffer;
  const [send, recv] = [buffer(sendAddress), buffer(recvAddress)];
  const given = { ...(spec.reduces && { op }), ...(spec.rooted && { root }) };
  return rankCall(collective, rank, { dtype, count, send, recv, ...given }, 0);
}
