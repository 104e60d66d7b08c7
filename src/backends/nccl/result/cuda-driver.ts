/** The driver's own library, for facts about devices. It serves reports alone, so missing facts are left out. */
import type { cudaDriverTable } from "../sys/cuda-driver.ts";
import type { Bound } from "../sys/prototype.ts";

const success = 0;

/** Attributes of a device, by `CUdevice_attribute`. The runtime keeps this number reserved, without a name. */
const attribute = { multicastSupported: 132 } as const;

/**
 * True when a device can be part of a multicast object, which NVLS needs; `undefined` where the driver has no answer. Makes no such
 * object. The driver must have been started already, as the runtime does when it counts devices.
 */
export function multicastOf(
  bound: Bound<typeof cudaDriverTable>,
  ordinal: number,
): boolean | undefined {
  const [device, value] = [new Int32Array(1), new Int32Array(1)];
  if (bound.deviceGet?.(device, ordinal) !== success) return undefined;
  const asked = bound.deviceGetAttribute?.(
    value,
    attribute.multicastSupported,
    device[0] as number,
  );
  return asked === success ? value[0] !== 0 : undefined;
}
