/** What the backend answers about calls without running them. */
import {
  explainCall,
  isOrdered,
  linkOf,
  type NcclPin,
  type Planner,
  plannersOf,
  symmetricRefusal,
} from "../../algorithms/index.ts";
import {
  type CommInfo,
  type Explanation,
  type Question,
  type RankCall,
  UnsupportedError,
} from "../../api/index.ts";
import { aloneRefusal, isCopyAlone } from "./alone.ts";
import { type BusPlace, inBusOrder } from "./bus-order.ts";
import type { NcclCommunicator } from "./communicators.ts";
import { stepsOf } from "./issue.ts";
import { hasLoadDefect, isPlanned, misalignment } from "./known-versions.ts";
import { type Libraries, versionText } from "./libraries.ts";
import { dtypeRefusal } from "./mapping.ts";
import { phantomCall } from "./phantom.ts";

/** Answers for one world. */
export class Answers {
  readonly #libraries: Libraries;
  readonly #capability: number;
  readonly #size: number;
  readonly #pin: NcclPin;
  #planner: Planner | undefined;

  readonly #places: readonly BusPlace[] | undefined;

  /** `places` are the GPUs of all ranks, where they are known. */
  constructor(
    libraries: Libraries,
    capability: number,
    size: number,
    pin: NcclPin = {},
    places?: readonly BusPlace[],
  ) {
    this.#pin = pin;
    this.#places = places;
    this.#libraries = libraries;
    this.#capability = capability;
    this.#size = size;
  }

  /** Why a call cannot be made; `undefined` when it can. */
  refusal(question: Question, comm: CommInfo): string | undefined {
    const { dtype } = question;
    if (dtype === undefined) return undefined;
    const { ncclVersion } = this.#libraries;
    const reason =
      dtypeRefusal(question, ncclVersion, this.#capability) ??
      aloneRefusal(question, comm.ranks.length);
    if (reason !== undefined || !hasLoadDefect(ncclVersion)) return reason;
    const found = inBusOrder(comm, this.#places);
    return isPlanned(ncclVersion) && isOrdered(found)
      ? symmetricRefusal(this.#plans(), question, found)
      : misalignment(question);
  }

  /** The plan that NCCL takes on the machine that is known, for ranks in the order of their GPUs on the bus. */
  explain(question: Question, comm: CommInfo): Explanation {
    return explainCall(this.#plans(), linkOf(), question, inBusOrder(comm, this.#places));
  }

  /** NCCL's own estimate, in nanoseconds; nothing runs. */
  estimateNs(question: Question, comm: NcclCommunicator): number {
    const { nccl } = this.#libraries;
    const calls = comm.info.local.map((rank) => phantomCall(question, rank, comm.size));
    if (isCopyAlone(calls[0] as RankCall, comm.size)) return 0;
    const parts = calls.map((call) => comm.part(call));
    try {
      let us = 0;
      for (const step of stepsOf(calls[0] as RankCall, comm.size)) {
        us += nccl.estimateUs(() => {
          for (const part of parts) step(nccl, part);
        });
      }
      return 1000 * us;
    } finally {
      for (const { call, op } of parts) comm.endOp(call, op);
    }
  }

  /** Plans of versions that are not known are not guessed. */
  #plans(): Planner {
    const { ncclVersion } = this.#libraries;
    if (!isPlanned(ncclVersion)) {
      throw new UnsupportedError({
        headline: `explain: the plans of NCCL ${versionText(ncclVersion)} are not known`,
        hint: "world.estimate(call) asks NCCL for its time",
      });
    }
    const isPinned = Object.values(this.#pin).some((value) => value !== undefined);
    const followed = isPinned ? ({ like: "nccl-2.28", nccl: this.#pin } as const) : {};
    this.#planner ??= plannersOf(followed)(this.#size);
    return this.#planner;
  }
}
