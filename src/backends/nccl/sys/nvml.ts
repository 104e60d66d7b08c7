/**
 * The functions of NVML, the driver's library that reports names and links of GPUs without opening a context.
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
  /** The target of a link: an `nvmlIntNvLinkDeviceType_t`. */
  deviceGetNvLinkRemoteDeviceType: prototype<
    (device: Ptr, link: number, type: Int32Array) => Status
  >(
    "nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, int* pNvLinkDeviceType)",
    "11.4",
  ),
  /** PCI address of the target: an `nvmlPciInfo_t`. */
  deviceGetNvLinkRemotePciInfo: prototype<(device: Ptr, link: number, pci: Uint32Array) => Status>(
    "nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, void* pci)",
    "9.0",
  ),
  /** Topology level of two GPUs without NVLink: an `nvmlGpuTopologyLevel_t`. */
  deviceGetTopologyCommonAncestor: prototype<
    (device: Ptr, other: Ptr, level: Int32Array) => Status
  >(
    "nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2, int* pathInfo)",
    "7.0",
  ),
} as const;
