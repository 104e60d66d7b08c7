/** The NCCL backend: real GPUs. Needs Node.js, the package koffi, libcudart and libnccl ≥ 2.18. */

import type { OpenRequest, Probe } from "../../api/backend-entry.ts";
import { countText, firstLine } from "../../api/error-text.ts";
import { type Backend, CommError } from "../../api/index.ts";
import { assertOptions } from "../../api/option-kinds.ts";
import { launcherEnvironment } from "../../api/world/launchers.ts";
import { rankPlaces } from "./devices.ts";
import { versionText } from "./discovery/libraries.ts";
import { join } from "./join.ts";
import { openLocal, sessionSetup } from "./open.ts";
import { assertDevices, assertStreams, type NcclOptions, ncclOptionKinds } from "./options.ts";
import { needsVariables, reachingPin } from "./process/pinned-start.ts";
import { PlanRecord } from "./process/plan-log.ts";
import { afterStarts, openAfterMs } from "./process/start-variables.ts";

export type { NcclPin } from "../../algorithms/index.ts";
export type { NcclOptions } from "./options.ts";
export type { PlanRecord, RecordedPlan, TakenCommunicator, TakenPlan } from "./process/plan-log.ts";
export { CudaError, type NativeFailure, NcclError } from "./result/errors.ts";

/** NCCL as a backend, with the plans of its log. */
export interface NcclBackend extends Backend {
  /** The plans that NCCL took for calls, with `readPlan`: on rank 0's process alone. */
  readonly plans: PlanRecord;
}

/**
 * Real GPUs through NVIDIA's NCCL, one GPU per rank.
 *
 * @throws InvalidArgumentError for an option that makes no sense.
 * @example
 * const world = await createWorld({ backend: nccl(), size: 8 });
 *
 * @example
 * const pinned = nccl({ plan: { algorithm: "Ring", protocol: "LL", channels: 4 }, readPlan: true });
 * // ... calls in a world of it ...
 * pinned.plans.take(); // [{ comm: "world", collective: "allReduce", bytes: 4096, algorithm: "Ring", ... }]
 */
export function nccl(options: NcclOptions = {}): NcclBackend {
  assertOptions("nccl", options, ncclOptionKinds, { renamed: { checks: "compareCalls" } });
  const { devices } = options;
  if (devices !== undefined) assertDevices(devices);
  assertStreams(options);
  const pin = reachingPin(options.plan);
  const plans = new PlanRecord();
  return {
    name: "nccl",
    plans,
    probe: (request) => probe(options, request),
    async open(request) {
      const { libraries, places } = await rankPlaces(options, request);
      if (devices === undefined) warnOfManyWorlds(request.size);
      const start = () => {
        const setup = sessionSetup(options, { pin, size: places.length, plans, libraries });
        return openLocal(setup, places, request.name);
      };
      return afterStarts(needsVariables(pin), start, openAfterMs);
    },
    join: (request) =>
      join(options, request, (libraries, size) =>
        sessionSetup(options, { pin, size, plans, libraries }),
      ),
  };
}

async function probe(options: NcclOptions, request: OpenRequest): Promise<Probe> {
  try {
    const { libraries, places } = await rankPlaces(options, request);
    return {
      ok: true,
      reason: `NCCL ${versionText(libraries.ncclVersion)}, ${countText(places.length, "GPU")}`,
    };
  } catch (error) {
    if (!(error instanceof CommError)) throw error;
    return { ok: false, reason: firstLine(error) };
  }
}

let hasWarned = false;

/**
 * Warns once if a launcher has started several processes and this one opens a separate world: all of them then use the same
 * GPUs.
 */
function warnOfManyWorlds(
  size: number,
  env: Readonly<Record<string, string | undefined>> = process.env,
): void {
  const processes = processesOf(env);
  if (hasWarned || processes < 2) return;
  hasWarned = true;
  const gpus = `the first ${size === 1 ? "GPU" : `${size} GPUs`} that it sees`;
  process.emitWarning(
    `createWorld: this is one of ${processes} processes of a launcher, and each that opens such a world drives ${gpus} by itself; ` +
      "use connect({ backend: nccl() }) to be one rank of the job, or nccl({ devices }) to say which GPUs this process has",
    { type: "TwincclLaunch", code: "ERR_COMM_ARG" },
  );
}

/** Number of processes that the launcher has started; 1 where it is unknown. */
function processesOf(env: Readonly<Record<string, string | undefined>>): number {
  try {
    return launcherEnvironment(env)?.size ?? 1;
  } catch {
    // Half-set variables are an error of `connect`.
    return 1;
  }
}
