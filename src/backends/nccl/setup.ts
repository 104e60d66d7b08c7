/** The arguments of sessions, from the options of the backend. Fixes the settings that NCCL reads once per process. */
import { assertRingSize, type NcclPin } from "../../algorithms/index.ts";
import type { Libraries } from "./discovery/libraries.ts";
import type { Setup } from "./open.ts";
import type { NcclOptions } from "./options.ts";
import { pinnedConfig } from "./process/pinned-start.ts";
import type { PlanRecord } from "./process/plan-log.ts";
import { processSettings } from "./process/process-settings.ts";

/** The session to open: so many ranks, with the pinned plan. */
interface Opening {
  readonly pin: NcclPin;
  readonly size: number;
  readonly plans: PlanRecord;
  readonly libraries: Libraries;
}

/**
 * To be called right before NCCL is used, once all other arguments are checked: the settings of a process are
 * final.
 *
 * @throws InvalidArgumentError, UnsupportedError for settings that differ from those that NCCL has read in this process.
 */
export function setupOf(
  { timeoutMs, compareCalls, staging, nvls = false, readPlan = false }: NcclOptions,
  { pin, size, plans, libraries }: Opening,
): Setup {
  assertRingSize(pin, size);
  processSettings.settleNvls(nvls);
  const log = processSettings.settle(pin, readPlan);
  return {
    libraries,
    config: pinnedConfig(pin),
    timeoutMs,
    compareCalls,
    staging,
    pin: { ...pin, ...processSettings.buffers() },
    unusual: processSettings.unusual(),
    readPlans: log && ((comm) => plans.read(log, comm)),
  };
}
