/** The CUDA runtime as functions that return their result or throw `CudaError`. */
import type { ListRunner } from "../sys/call-list.ts";
import { type CudaDeviceCalls, deviceCalls } from "./cuda-devices.ts";
import { type CudaListCalls, cudaListCalls } from "./cuda-lists.ts";
import { type CudaMemoryCalls, memoryCalls } from "./cuda-memory.ts";
import { type BoundCuda, cudaLibrary } from "./cuda-status.ts";
import { type CudaStreamCalls, streamCalls } from "./cuda-streams.ts";

/** The CUDA calls that this backend makes; a fake can stand in for tests of what lies above. */
export interface CudaCalls
  extends CudaDeviceCalls,
    CudaListCalls,
    CudaMemoryCalls,
    CudaStreamCalls {}

/** Wraps a bound libcudart; `runner` is what lists of its calls are made with, where there is such a thing. */
export function cudaCalls(bound: BoundCuda, runner?: ListRunner): CudaCalls {
  const library = cudaLibrary(bound);
  return {
    ...deviceCalls(library),
    ...cudaListCalls(library, runner),
    ...memoryCalls(library),
    ...streamCalls(library),
  };
}
