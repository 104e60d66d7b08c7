/**
 * The functions of NVML, the library of the driver that knows names and links of GPUs without touching them.
 *
 * @see https://docs.nvidia.com/deploy/nvml-api/
 */
import { prototype } from "./prototype.ts";

type Ptr = bigint;
type Status = number;

export const nvmlTable = {
  init: prototype<() => Status>("nvmlReturn_t nvmlInit_v2(void)", "5.0"),
  shutdown: prototype<() => Status>("nvmlReturn_t nvmlShutdown(void)", "1.0"),
  systemGetDriverVersion: prototype<(version: Uint8Array, length: number) => Status>(
    "nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length)",
    "2.0",
  ),
  deviceGetHandleByPciBusId: prototype<(busId: string, device: BigUint64Array) => Status>(
    "nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* pciBusId, nvmlDevice_t* device)",
    "5.0",
  ),
  deviceGetName: prototype<(device: Ptr, name: Uint8Array, length: number) => Status>(
    "nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length)",
    "1.0",
  ),
  /** Total, free and used bytes. */
  deviceGetMemoryInfo: prototype<(device: Ptr, memory: BigUint64Array) => Status>(
    "nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, uint64_t* memory)",
    "2.0",
  ),
  deviceGetNvLinkState: prototype<(device: Ptr, link: number, active: Int32Array) => Status>(
    "nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, int* isActive)",
    "8.0",
  ),
} as const;
