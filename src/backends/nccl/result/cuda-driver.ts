/** What the driver's own library knows about devices. It is asked for reports alone, so whatever it cannot say is left out. */
import type { cudaDriverTable } from "../sys/cuda-driver.ts";
import type { Bound } from "../sys/prototype.ts";

const success = 0;

/** Attributes of a device, by `CUdevice_attribute`. The runtime keeps this number reserved, without a name. */
const attribute = { multicastSupported: 132 } as const;

/**
 * Whether a device can be part of a multicast object, which NVLS needs; `undefined` where the driver cannot say. Makes no such
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
