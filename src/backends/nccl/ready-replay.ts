/** Replays of a recording that can be made again at once: those without arrays, which would be copied each time. */
import type { NcclCommunicator } from "./communicators.ts";
import type { CapturedGraph } from "./graphs.ts";
import type { Ready } from "./ready-call.ts";

export class ReadyReplay implements Ready {
  readonly comm: NcclCommunicator;
  readonly #graph: CapturedGraph;

  constructor(comm: NcclCommunicator, graph: CapturedGraph) {
    this.comm = comm;
    this.#graph = graph;
  }

  makeAgain(number: number): void {
    this.#graph.launch();
    this.comm.count(number);
  }
}
