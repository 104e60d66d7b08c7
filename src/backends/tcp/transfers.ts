/** Sends and receives with their other end in another process: each in slices, with credits of its flow. */
import type { RemoteTransfer } from "../../api/backend-entry.ts";
import { bytesOf, CollectiveMismatchError, type DType } from "../../api/index.ts";
import { NativePromise } from "../../api/op.ts";
import type { Flow } from "./flows.ts";
import type { Peers } from "./peers.ts";
import type { RankMemory } from "./values.ts";
import type { FlowId } from "./wire.ts";

const sliceBytes = 256 * 2 ** 10;

/** Slices of a message that may wait at the receiver. */
const credits = 4;

/** One end of a message, and its place. */
export interface TransferRequest {
  readonly peers: Peers;
  readonly comm: number;
  readonly ranks: readonly number[];
  readonly name: string;
  readonly transfer: RemoteTransfer;
  readonly memory: RankMemory;
}

/** One end of a message under way. */
export class TransferRun {
  readonly #request: TransferRequest;
  readonly #peer: number;
  readonly #id: FlowId;
  readonly #bytes: Uint8Array;
  readonly #slices: number;
  #next = 0;
  /** Messages that the kernel does not have yet. */
  #unsent = 0;
  #isOver = false;
  readonly #outcome = new NativePromise<void>();

  constructor(request: TransferRequest) {
    const { transfer, memory, ranks } = request;
    this.#request = request;
    this.#peer = ranks[transfer.peer] as number;
    this.#id = { sequence: (2 * transfer.number + 1) >>> 0, lane: 0, round: 0 };
    const byteLength = transfer.call.count * bytesOf(transfer.call.dtype as DType);
    this.#bytes = new Uint8Array(memory.memory.buffer, memory.byteOffset, byteLength);
    this.#slices = Math.max(1, Math.ceil(byteLength / sliceBytes));
  }

  get done(): Promise<void> {
    return this.#outcome.promise;
  }

  /** True while it has to send to a world rank, or to receive from it. */
  needs(worldRank: number): boolean {
    return !this.#isOver && this.#peer === worldRank;
  }

  start(): void {
    if (this.#request.transfer.direction === "recv") this.#receive();
    else this.#begin();
  }

  fail(error: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#forget();
    this.#outcome.reject(error);
  }

  readonly #begin = (): void => {
    // A message to a rank that has gone is never sent: the end of its connection fails this.
    if (this.#request.peers.endOf(this.#peer) !== undefined) return;
    if (!this.#isOver && this.#endpoint.begin(this.#begin)) this.#send();
  };

  get #endpoint() {
    const { peers, comm } = this.#request;
    return peers.endpoint(comm, this.#peer);
  }

  readonly #send = (): void => {
    const { peers, comm } = this.#request;
    const endpoint = this.#endpoint;
    const flow: Flow = endpoint.outgoing(this.#id, credits);
    const total = this.#bytes.byteLength;
    while (!this.#isOver && this.#next < this.#slices && flow.takeCredit(this.#send)) {
      const slice = this.#slice(this.#next++);
      endpoint.sent(slice.byteLength);
      const block = peers.blocks.take(slice.byteLength);
      block.bytes.set(slice);
      this.#unsent++;
      peers.send(this.#peer, comm, { ...this.#id, total }, block, () => {
        this.#unsent--;
        this.#finishIfDone();
      });
    }
    this.#finishIfDone();
  };

  readonly #receive = (): void => {
    const { peers, comm } = this.#request;
    const flow = this.#endpoint.incoming(this.#id);
    while (!this.#isOver && this.#next < this.#slices) {
      const arrival = flow.take(this.#receive);
      if (arrival === undefined) return;
      const { block, total } = arrival;
      const slice = this.#slice(this.#next);
      if (total !== this.#bytes.byteLength || block.bytes.byteLength !== slice.byteLength) {
        peers.blocks.give(block);
        this.fail(this.#lengthError(total, block.bytes.byteLength, slice.byteLength));
        return;
      }
      slice.set(block.bytes);
      peers.blocks.give(block);
      if (this.#next + credits < this.#slices) peers.credit(this.#peer, comm, this.#id);
      this.#next++;
    }
    this.#finishIfDone();
  };

  #slice(number: number): Uint8Array {
    return this.#bytes.subarray(number * sliceBytes, (number + 1) * sliceBytes);
  }

  #finishIfDone(): void {
    if (this.#isOver || this.#next < this.#slices || this.#unsent > 0) return;
    this.#isOver = true;
    const { peers, comm, transfer } = this.#request;
    if (transfer.direction === "recv") {
      const report = this.#endpoint.end(this.#bytes.byteLength);
      if (report !== undefined) peers.ended(this.#peer, comm, report);
    }
    this.#forget();
    this.#outcome.resolve(undefined);
  }

  /** A flow has one direction here: the other direction of the pair has numbers of its own. */
  #forget(): void {
    const { transfer, peers } = this.#request;
    this.#endpoint.forgetFlow(this.#id.sequence, transfer.direction, peers.blocks);
  }

  /** The error for a message of another length, or of the right one with a part of another length. */
  #lengthError(total: number, part: number, neededPart: number): CollectiveMismatchError {
    const { transfer, name, ranks } = this.#request;
    const { call, peer } = transfer;
    const isTotal = total !== this.#bytes.byteLength;
    const [found, needed] = isTotal ? [total, this.#bytes.byteLength] : [part, neededPart];
    const what = isTotal
      ? `${found} bytes, rank ${call.rank} expects ${needed}`
      : `a part of ${found} bytes, rank ${call.rank} expects one of ${needed}`;
    return new CollectiveMismatchError(
      {
        headline: `recv: rank ${peer} has sent ${what}`,
        hint: isTotal
          ? "send and recv of one message have the same dtype and count"
          : "messages travel in parts: run the same version of twinccl on every rank",
      },
      {
        rank: call.rank,
        size: ranks.length,
        comm: name,
        collective: "recv",
        ranks: [peer, call.rank],
        values: [`${found} bytes`, `${needed} bytes`],
      },
    );
  }
}
