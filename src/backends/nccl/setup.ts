/** What sessions are opened with, from the options of the backend. Settles what NCCL reads once per process. */
import type { NcclPin } from "../../algorithms/index.ts";
import type { Libraries } from "./discovery/libraries.ts";
import type { Setup } from "./open.ts";
import type { NcclOptions } from "./options.ts";
import { pinnedConfig } from "./process/pinned-start.ts";
import type { PlanRecord } from "./process/plan-record.ts";
import { processSettings } from "./process/process-settings.ts";

/**
 * To be called right before NCCL is used.
 *
 * @throws InvalidArgumentError, UnsupportedError for what NCCL was already told otherwise in this process.
 */
export function setupOf(
  { timeoutMs, checks, staging, nvls = false, readPlan = false }: NcclOptions,
  pin: NcclPin,
  plans: PlanRecord,
  libraries: Libraries,
): Setup {
  processSettings.settleNvls(nvls);
  const log = processSettings.settle(pin, readPlan);
  return {
    libraries,
    config: pinnedConfig(pin),
    timeoutMs,
    checks,
    staging,
    pin: { ...pin, ...processSettings.buffers() },
    unusual: processSettings.unusual(),
    readPlans: log && ((comm) => plans.read(log, comm)),
  };
}
