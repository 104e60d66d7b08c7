/** A bound libnccl: lookup of its functions, and the errors of their statuses. */
import { ncclTable } from "../sys/nccl.ts";
import { type Bound, need } from "../sys/prototype.ts";
import { NcclError } from "./errors.ts";

const success = 0;

/** `ncclInProgress`: neither done nor wrong. */
export const inProgress = 7;

/** Names of `ncclResult_t`, by value. */
const statusNames = [
  "ncclSuccess",
  "ncclUnhandledCudaError",
  "ncclSystemError",
  "ncclInternalError",
  "ncclInvalidArgument",
  "ncclInvalidUsage",
  "ncclRemoteError",
  "ncclInProgress",
  "ncclTimeout",
];

/** A bound libnccl. */
export type BoundNccl = Bound<typeof ncclTable>;

/** The parts of every NCCL call. */
export interface NcclLibrary {
  /** A function that must be there; throws by name when the library lacks it. */
  get<K extends keyof typeof ncclTable>(name: K): NonNullable<BoundNccl[K]>;
  /** Throws unless the status is success. */
  check(status: number, cCall: string, comm?: bigint): void;
  has(name: keyof typeof ncclTable): boolean;
}

/** Wraps a bound libnccl for its callers. */
export function ncclLibrary(bound: BoundNccl): NcclLibrary {
  const get = <K extends keyof typeof ncclTable>(name: K) => need(ncclTable, bound, name);
  return {
    get,
    has: (name) => bound[name] !== undefined,
    check(status, cCall, comm) {
      if (status === success) return;
      const statusName = statusNames[status] ?? `status ${status}`;
      const last = bound.getLastError?.(comm ?? null) ?? "";
      const detail = last === "" ? get("getErrorString")(status) : last;
      throw new NcclError({ cCall, status, statusName, detail });
    },
  };
}
