/** NCCL as functions that return their result or throw `NcclError`. */
import type { ListRunner } from "../sys/call-list.ts";
import { backgroundCalls, type NcclBackgroundCalls } from "./nccl-background.ts";
import { collectiveCalls, type NcclCollectiveCalls } from "./nccl-collectives.ts";
import { communicatorCalls, type NcclCommunicatorCalls } from "./nccl-communicators.ts";
import { listCalls, type NcclListCalls } from "./nccl-lists.ts";
import { type BoundNccl, ncclLibrary } from "./nccl-status.ts";
import { type NcclWindowCalls, windowCalls } from "./nccl-windows.ts";

/** The NCCL calls that this backend makes; a fake can stand in for tests of what lies above. */
export interface NcclCalls
  extends NcclCommunicatorCalls,
    NcclCollectiveCalls,
    NcclBackgroundCalls,
    NcclListCalls,
    NcclWindowCalls {}

/** Wraps a bound libnccl; `runner` is what lists of its calls are made with, where there is such a thing. */
export function ncclCalls(bound: BoundNccl, runner?: ListRunner): NcclCalls {
  const library = ncclLibrary(bound);
  return {
    ...communicatorCalls(library),
    ...collectiveCalls(library),
    ...backgroundCalls(library),
    ...listCalls(library, runner),
    ...windowCalls(library),
  };
}
