/**
 * The functions of libcuda, the driver's own library, that say what the CUDA runtime has no words for.
 *
 * @see https://docs.nvidia.com/cuda/cuda-driver-api/
 */
import { prototype } from "./prototype.ts";

type Status = number;

export const cudaDriverTable = {
  /** The `CUdevice` that the runtime knows by the same number. */
  deviceGet: prototype<(device: Int32Array, ordinal: number) => Status>(
    "CUresult cuDeviceGet(CUdevice* device, int ordinal)",
    "2.0",
  ),
  deviceGetAttribute: prototype<(value: Int32Array, attribute: number, device: number) => Status>(
    "CUresult cuDeviceGetAttribute(int* pi, int attrib, CUdevice dev)",
    "2.0",
  ),
} as const;
