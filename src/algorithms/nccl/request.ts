/** Plans of NCCL for requests of any origin: every field is checked. */
import { dtypes, isDType } from "../../api/dtype.ts";
import { assertOptions, invalid, type OptionKinds, textOf } from "../../api/option-kinds.ts";
import { assertForced, type Forced } from "./choice.ts";
import { isCount, planCall } from "./plan.ts";
import type { NcclPlan, PlanRequest } from "./plan-types.ts";
import { isNcclCollective, type NcclSettings, ncclCollectives } from "./rules.ts";
import { assertTopology } from "./topology.ts";

const subject = "plan of NCCL";

const requestKinds: OptionKinds<PlanRequest> = {
  ...{ version: true, topology: "object", collective: true, dtype: true, op: true, count: true },
  ...{ root: true, settings: "object", forced: "object", symmetric: "object" },
};

const settingKinds: OptionKinds<NcclSettings> = {
  ...{ maxChannels: true, minChannels: true, threads: true, ll128Threads: true },
  ...{ buffSize: true, llBuffSize: true, ll128BuffSize: true },
};

const forcedKinds: OptionKinds<Forced> = { algorithm: true, protocol: true };

/**
 * NCCL's plan of a call.
 *
 * @throws InvalidArgumentError with the field of a wrong value. UnsupportedError for unknown versions, and for worlds and settings
 * that NCCL has no plan for.
 */
export function ncclPlan(request: PlanRequest): NcclPlan {
  assertOptions(subject, request, requestKinds);
  const { topology, collective, dtype, settings, forced, symmetric } = request;
  const refuse = (field: string, found: unknown, needs: string): never => {
    throw invalid(subject, field, textOf(found), needs);
  };
  if (!isNcclCollective(collective)) {
    refuse("collective", collective, `one of ${ncclCollectives.join(", ")}`);
  }
  assertTopology(subject, topology);
  if (!isDType(dtype)) refuse("dtype", dtype, `one of ${dtypes.join(", ")}`);
  assertOptions(subject, settings ?? {}, settingKinds, { path: "settings" });
  assertOptions(subject, forced ?? {}, forcedKinds, { path: "forced" });
  assertForced(subject, forced ?? {});
  if (symmetric !== undefined) {
    const { send, recv } = symmetric;
    if (!isCount(send)) refuse("symmetric.send", send, "an offset in bytes");
    if (!isCount(recv)) refuse("symmetric.recv", recv, "an offset in bytes");
  }
  return planCall(request);
}
