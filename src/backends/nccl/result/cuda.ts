/** The CUDA runtime as functions that return their result or throw `CudaError`. */
import { type CudaDeviceCalls, deviceCalls } from "./cuda-devices.ts";
import { type CudaMemoryCalls, memoryCalls } from "./cuda-memory.ts";
import { type BoundCuda, cudaLibrary } from "./cuda-status.ts";
import { type CudaStreamCalls, streamCalls } from "./cuda-streams.ts";

/** The CUDA calls that this backend makes; a fake can stand in for tests of what lies above. */
export interface CudaCalls extends CudaDeviceCalls, CudaMemoryCalls, CudaStreamCalls {}

/** Wraps a bound libcudart. */
export function cudaCalls(bound: BoundCuda): CudaCalls {
  const library = cudaLibrary(bound);
  return { ...deviceCalls(library), ...memoryCalls(library), ...streamCalls(library) };
}
