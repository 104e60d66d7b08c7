/** What sessions are opened with, from the options of the backend. Settles what NCCL reads once per process. */
import { assertRingSize, type NcclPin } from "../../algorithms/index.ts";
import type { Libraries } from "./discovery/libraries.ts";
import type { Setup } from "./open.ts";
import type { NcclOptions } from "./options.ts";
import { pinnedConfig } from "./process/pinned-start.ts";
import type { PlanRecord } from "./process/plan-record.ts";
import { processSettings } from "./process/process-settings.ts";

/** What is opened: so many ranks, as they are pinned. */
interface Opening {
  readonly pin: NcclPin;
  readonly size: number;
  readonly plans: PlanRecord;
  readonly libraries: Libraries;
}

/**
 * To be called right before NCCL is used, once nothing else can be wrong with what was asked for: a process is settled for
 * good.
 *
 * @throws InvalidArgumentError, UnsupportedError for what NCCL was already told otherwise in this process.
 */
export function setupOf(
  { timeoutMs, checks, staging, nvls = false, readPlan = false }: NcclOptions,
  { pin, size, plans, libraries }: Opening,
): Setup {
  assertRingSize(pin, size);
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
