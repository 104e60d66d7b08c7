/** Recorded calls as CUDA graphs: one per rank of this process, launched together. */

import { runAll } from "../../../api/run-all.ts";
import type { Device } from "../device/device.ts";
import type { FinishCopyBack, StagedCalls } from "../device/host-arrays.ts";
import type { LocalMember } from "../device/local-rank.ts";
import type { CallSequence } from "../sys/call-list.ts";

interface DeviceGraph {
  readonly device: Device;
  readonly graph: bigint;
}

/** A recording that can be launched again and again. */
export class CapturedGraph {
  #graphs: readonly DeviceGraph[];
  /** Valid as long as all parts are: no rank can replay it once any has given back its part. */
  readonly #launches: CallSequence | undefined;
  #isLaunchedInPart = false;
  /** Arrays that its calls were given. */
  readonly #copied: StagedCalls | undefined;

  private constructor(graphs: readonly DeviceGraph[], copied: StagedCalls | undefined) {
    this.#graphs = graphs;
    const launches = graphs.map(({ device, graph }) => ({ graph, stream: device.stream }));
    this.#launches = graphs[0]?.device.cuda.launches(launches, () => {
      this.#isLaunchedInPart = true;
    });
    this.#copied = copied;
  }

  /**
   * Captures what `issue` puts on the streams of a communicator's devices; nothing of it runs.
   *
   * When `issue` throws, or a device cannot capture, the captures that began are ended and thrown away.
   */
  static capture(
    devices: readonly Device[],
    issue: () => void,
    copied?: StagedCalls,
  ): CapturedGraph {
    let failure: { readonly error: unknown } | undefined;
    const begun: Device[] = [];
    try {
      for (const device of devices) {
        device.use().beginCapture(device.stream);
        begun.push(device);
      }
      issue();
    } catch (error) {
      failure = { error };
    }
    const attempt = <T>(each: () => T): T[] => {
      try {
        return [each()];
      } catch (error) {
        failure ??= { error };
        return [];
      }
    };
    // All captures end before the first recording is made launchable: CUDA allows no such call while a stream captures.
    const recordings = begun.flatMap((device) =>
      attempt(() => ({ device, recording: device.use().endCapture(device.stream) })),
    );
    const graphs = recordings.flatMap(({ device, recording }) =>
      attempt(() => ({ device, graph: device.use().instantiate(recording) })),
    );
    const captured = new CapturedGraph(graphs, copied);
    if (failure === undefined) return captured;
    captured.discard();
    throw failure.error;
  }

  /**
   * Puts it on every device's stream, between the copies of arrays that its calls were given. `outOfStep` is called where only
   * some devices have it.
   */
  launch(outOfStep: (error: unknown) => void): FinishCopyBack | undefined {
    this.#copied?.copyIn();
    try {
      // A launch depends on its stream, and not on the current device as a capture does.
      this.#launches?.run();
    } catch (error) {
      if (this.#isLaunchedInPart) outOfStep(error);
      throw error;
    }
    return this.#copied?.copyBack();
  }

  /**
   * Gives back one rank's part, or all parts where none is named; their launches must be done. NCCL cannot end a communicator
   * with graphs that still exist.
   */
  discard(member?: LocalMember): void {
    const graphs = this.#graphs;
    this.#graphs =
      member === undefined ? [] : graphs.filter(({ device }) => device !== member.stream.device);
    this.#copied?.release(member);
    const gone = graphs.filter((each) => !this.#graphs.includes(each));
    runAll(gone.map((each) => () => each.device.use().graphDestroy(each.graph)));
  }

  /** True when nothing of it is left. */
  get isOver(): boolean {
    return this.#graphs.length === 0;
  }
}
