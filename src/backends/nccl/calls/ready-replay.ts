/**
 * Replays of a recording that can be made again at once: those without arrays, which would be copied each time. The launches of
 * several GPUs become one list where they are repeated often.
 */

import type { LaunchList } from "../result/cuda.ts";
import type { NcclCommunicator } from "./communicators.ts";
import type { CapturedGraph } from "./graphs.ts";
import type { Ready } from "./ready-call.ts";

/**
 * From which repeat on a list is written. It takes some 20 µs where its code is cold and saves some 0.2 µs a GPU and replay: by
 * then the replays have taken much longer than that.
 */
const listedFrom = 8;

export class ReadyReplay implements Ready {
  readonly comm: NcclCommunicator;
  readonly #graph: CapturedGraph;
  /** As long as the recording lives: no rank can replay it once any has given back its part. */
  #list: LaunchList | undefined;
  #repeats = 0;

  constructor(comm: NcclCommunicator, graph: CapturedGraph) {
    this.comm = comm;
    this.#graph = graph;
  }

  makeAgain(number: number): void {
    if (this.#list !== undefined) this.#list.make();
    else this.#launchUnlisted();
    this.comm.count(number);
  }

  #launchUnlisted(): void {
    if (++this.#repeats === listedFrom) this.#list = this.#graph.listed();
    if (this.#list !== undefined) this.#list.make();
    else this.#graph.launch();
  }
}
