/** The device of a rank as programs see it: its name, stream and memory. */
import type { Memory, RankDevice } from "../../../api/index.ts";
import { type HostArrays, hostArrayError } from "./host-arrays.ts";
import type { LocalRank } from "./local-rank.ts";

/** The device of one rank of this process. */
export class NcclRankDevice implements RankDevice {
  readonly name: string;
  readonly local: LocalRank;
  /** `undefined` where calls take no arrays. */
  readonly #arrays: HostArrays | undefined;

  constructor(local: LocalRank, arrays: HostArrays | undefined) {
    this.name = local.device.name;
    this.local = local;
    this.#arrays = arrays;
  }

  /** The stream is shared with the caller's own work from now on. */
  get stream(): bigint {
    const { device } = this.local;
    device.share();
    return device.stream;
  }

  allocate(byteLength: number, symmetric: boolean): Memory {
    return this.local.allocate(byteLength, symmetric);
  }

  adopt(ptr: bigint, byteLength: number): Memory {
    return this.local.adopt(ptr, byteLength);
  }

  borrow(buffer: ArrayBufferLike): Memory {
    if (this.#arrays !== undefined) return this.#arrays.borrow(buffer);
    throw hostArrayError(this.local.worldRank);
  }
}
