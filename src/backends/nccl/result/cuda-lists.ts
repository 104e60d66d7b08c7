/** Launches of recordings that come again together: written down as one list of C calls. */
import { CallList, type ListRunner } from "../sys/call-list.ts";
import { addressOf } from "../sys/prototype.ts";
import type { CudaLibrary } from "./cuda-status.ts";

/** A launchable recording, and the stream that it goes onto. */
export interface Launch {
  readonly graph: bigint;
  readonly stream: bigint;
}

/** Launches that are made again and again. */
export interface LaunchList {
  /** @throws CudaError for the first launch that fails; those behind it are not made. */
  make(): void;
}

/** Writes lists. */
export interface CudaListCalls {
  /** One list of launches in this order; `undefined` where there are no lists. */
  listedLaunches(launches: readonly Launch[]): LaunchList | undefined;
}

/** Writes lists of this library's calls, where there is what makes them. */
export function cudaListCalls(
  { get, check }: CudaLibrary,
  runner: ListRunner | undefined,
): CudaListCalls {
  const address = runner && addressOf(get("graphLaunch"));
  return {
    listedLaunches(launches) {
      if (runner === undefined || address === undefined) return undefined;
      const calls = launches.map(({ graph, stream }) => ({ address, args: [graph, stream] }));
      const list = new CallList(runner, calls);
      return { make: () => check(list.make(), "cudaGraphLaunch") };
    },
  };
}
