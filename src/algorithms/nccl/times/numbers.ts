/**
 * The numbers of the time model, by the part of NCCL that they describe; docs/predict.md has the formulas.
 *
 * Names end in their units: `Us` microseconds, `Rate` 10⁹ bytes a second, `Ps` picoseconds for each byte.
 */
import type { NcclProtocol } from "../rules.ts";

/** A Ring over one protocol. */
export interface RingNumbers {
  /** A call that moves nothing. */
  readonly startUs: number;
  /** Each further channel. */
  readonly channelUs: number;
  /** Each step to the next rank. */
  readonly hopUs: number;
  /** Each further chunk of an all-reduce that holds data. */
  readonly chunkUs: number;
  /** One channel of a step. */
  readonly hopRate: number;
  /** One channel of the pass that has no step: the bytes that a rank only sends, or only keeps. */
  readonly passRate: number;
}

/** A Ring over LL, where all threads move the first bytes at once. */
export interface LowRingNumbers extends RingNumbers {
  /** One channel of a step, for the first bytes. */
  readonly firstRate: number;
  /** 10⁹ elements a second that a channel writes to the caller's buffer, one by one. */
  readonly storeRate: number;
}

/** A Tree over one protocol. */
export interface TreeNumbers {
  readonly startUs: number;
  readonly hopUs: number;
  /** One channel of the first chunk's steps. */
  readonly chunkRate: number;
  /** One channel once all ranks are at work. */
  readonly rate: number;
}

/** A direct symmetric kernel; picoseconds of one block for each byte. */
export interface SymmetricNumbers {
  readonly startUs: number;
  readonly ownPs: number;
  /** For each other rank. */
  readonly peerPs: number;
}

/** The symmetric kernel of low latency, in which every rank receives what all send. */
export interface LowSymmetricNumbers {
  readonly startUs: number;
  /** Picoseconds of one block for each byte and rank. */
  readonly rankPs: number;
  /** Each pass of all threads after the first: it begins when the one before has arrived. */
  readonly passUs: number;
}

/** All numbers of a machine. */
export interface ModelNumbers {
  readonly ring: {
    readonly LL: LowRingNumbers;
    readonly LL128: RingNumbers;
    readonly Simple: RingNumbers;
  };
  readonly tree: { readonly [P in NcclProtocol]: TreeNumbers } & {
    /** Rate of two ranks by that of more: none of them has two neighbours. */
    readonly pairGain: number;
  };
  /** Broadcasts and reduces. */
  readonly chain: {
    /** Part of a pass of LL that takes its time whatever the number of its threads. */
    readonly passShare: number;
  };
  /** Over Simple where NCCL has registered the buffers, so that a rank writes into the next one's. */
  readonly registered: {
    /** The pass of an all-gather that has no step. */
    readonly passRate: number;
    /** A broadcast: one channel of the first chunk's steps. */
    readonly chunkRate: number;
    /** One channel of a message. */
    readonly messageRate: number;
  };
  /** Sends and receives. */
  readonly exchange: {
    /** Over LL. */
    readonly lowStartUs: number;
    readonly lowRate: number;
    /** Over Simple. */
    readonly startUs: number;
    readonly channelUs: number;
    /** One channel of a message. */
    readonly messageRate: number;
    /** One channel of a message at an address that is no multiple of 16. */
    readonly misalignedRate: number;
    /** All messages that leave a rank, or reach it, where it has several peers. */
    readonly portRate: number;
  };
  readonly symmetric: {
    readonly low: LowSymmetricNumbers;
    /** For each other rank, bytes that a direct kernel moves element by element. */
    readonly singlePs: number;
    readonly allReduce: SymmetricNumbers;
    readonly reduceScatter: SymmetricNumbers;
    readonly allGather: SymmetricNumbers;
  };
  /** The processes that make the calls. */
  readonly host: {
    /** A call, and more for each rank of the world. */
    readonly callUs: number;
    readonly rankUs: number;
    /** Each message of a group. */
    readonly messageUs: number;
    /** A call and a recorded call, for each rank that one process drives. */
    readonly sharedUs: number;
    readonly sharedGraphUs: number;
  };
  /** Beyond the device's time, from a call to its awaited end. */
  readonly awaited: {
    readonly eagerUs: number;
    readonly graphUs: number;
    /** More for each rank of the world. */
    readonly rankUs: number;
    /** One process for all ranks; grows a little faster than their number. */
    readonly sharedEagerUs: number;
    readonly sharedGraphUs: number;
  };
}
