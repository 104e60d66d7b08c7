/**
 * The numbers of the time model, by the part of NCCL that they describe; docs/design/nccl-times.md has the formulas.
 *
 * Names end in their units: `Us` microseconds, `Rate` 10⁹ bytes a second, `Ps` picoseconds for each byte.
 */

/** A Ring over one protocol. */
export interface RingNumbers {
  /** A call that moves nothing. */
  readonly startUs: number;
  /** Each further channel. */
  readonly channelUs: number;
  /** Each step to the next rank. */
  readonly hopUs: number;
  /** Each further chunk of an all-reduce that holds data, and over Simple each slice of a step. */
  readonly chunkUs: number;
  /** One channel of a step. */
  readonly hopRate: number;
  /** One channel of a rank's own part, which no step moves: the bytes that it only sends, or only keeps. */
  readonly ownRate: number;
}

/** A Ring over LL, where all threads of a block move a line at a time; `hopRate` holds where the channels fill the link. */
export interface LowRingNumbers extends RingNumbers {
  /** One channel of a step, for the first pass of its threads; and of a rank of a chain, for each way. */
  readonly firstRate: number;
  /** Each further pass of a step. */
  readonly passUs: number;
}

/** A Ring over Simple. */
export interface SimpleRingNumbers extends RingNumbers {
  /** 10⁹ elements a second of one channel that moves a block at addresses that are no multiples of 16. */
  readonly singleRate: number;
}

/** A Tree over one protocol. */
export interface TreeNumbers {
  readonly hopUs: number;
}

/** A Tree whose first chunk takes its time on each hop. */
export interface ChunkTreeNumbers extends TreeNumbers {
  /** One channel of the first chunk's steps. */
  readonly chunkRate: number;
}

/** A Tree over LL; over other protocols it starts as a Ring does. */
export interface LowTreeNumbers extends ChunkTreeNumbers {
  /** A call that moves nothing. */
  readonly startUs: number;
}

/** A Tree over LL128, which is slower than the ports of ranks. */
export interface LineTreeNumbers extends TreeNumbers {
  /** One channel once all ranks are at work; over other protocols half of the Ring's `hopRate`. */
  readonly rate: number;
}

/** A direct symmetric kernel that folds; picoseconds of one block for each byte. */
export interface SymmetricNumbers {
  readonly startUs: number;
  /** For each other rank. */
  readonly peerPs: number;
}

/** The direct symmetric kernel of an all-gather; picoseconds of one block for each byte that it stores. */
export interface SymmetricStores {
  readonly startUs: number;
  /** For each rank. */
  readonly storePs: number;
  /** More for each rank and each ordered pair of its peers, which store on it at the same time. */
  readonly crowdPs: number;
  /** For each other rank of a call in place, which stores nothing on its own rank. */
  readonly remotePs: number;
  /** Each time that a warp waits for words or elements of its own block, where packs of 16 bytes do not line up. */
  readonly wordUs: number;
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
  /**
   * 10⁹ elements a second that the threads of a channel move one by one: over LL to the caller's buffer, and in messages over Simple
   * at addresses that are no multiples of 16.
   */
  readonly elementRate: number;
  readonly ring: {
    readonly LL: LowRingNumbers;
    readonly LL128: RingNumbers;
    readonly Simple: SimpleRingNumbers;
  };
  readonly tree: {
    readonly LL: LowTreeNumbers;
    readonly LL128: LineTreeNumbers;
    readonly Simple: ChunkTreeNumbers;
    /** Rate of two ranks by that of more: none of them has two neighbours. */
    readonly pairGain: number;
  };
  /** Broadcasts and reduces. */
  readonly chain: {
    /** Part of a pass of LL that takes its time whatever the number of its threads. */
    readonly passShare: number;
  };
  /** An operator other than a sum: its kernel calls it through a table. */
  readonly operator: {
    readonly startUs: number;
    /** Nanoseconds for each thread of a block over LL. */
    readonly threadNs: number;
  };
  /** Over Simple where NCCL has registered the buffers, so that a rank writes into the next one's. */
  readonly registered: {
    /** A rank's own part of an all-gather. */
    readonly ownRate: number;
    /** A broadcast: one channel of the first chunk, for each rank that sends it on. */
    readonly chunkRate: number;
  };
  /** Sends and receives. */
  readonly exchange: {
    readonly startUs: number;
    /** The first 4096 bytes of a channel, and the others over LL. */
    readonly firstRate: number;
    readonly lowRate: number;
    /** One channel of a rank that sends and receives on it. */
    readonly messageRate: number;
    /** All messages that leave a rank, or reach it, where senders with several receivers meet receivers with several senders. */
    readonly portRate: number;
  };
  readonly symmetric: {
    readonly low: LowSymmetricNumbers;
    /** Each time that a warp of a direct kernel waits for loads from other ranks. */
    readonly loadUs: number;
    /** More for each round of a warp of a direct reduce-scatter whose loads miss the GPU's cache. */
    readonly missUs: number;
    readonly allReduce: SymmetricNumbers;
    readonly reduceScatter: SymmetricNumbers;
    readonly allGather: SymmetricStores;
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
    /** twinccl's own part, for each rank of the process: from the call to NCCL, and from the end to the settled promise. */
    readonly programUs: number;
  };
}
