/** Memory of a simulated device without contents. */
import { UnsupportedError } from "../../api/index.ts";
import type { SimMemory } from "./executor.ts";

/** Memory of a simulated device without contents. */
export class PhantomMemory implements SimMemory {
  readonly phantom = true;
  readonly borrowed = false;
  readonly device: string;
  readonly ptr: bigint;
  readonly byteLength: number;

  constructor(device: string, ptr: bigint, byteLength: number) {
    this.device = device;
    this.ptr = ptr;
    this.byteLength = byteLength;
  }

  write(): void {
    throw noContents("write", this.device);
  }

  read(): void {
    throw noContents("read", this.device);
  }

  /** Does nothing: contents could never be read. */
  fill(): void {}

  fingerprint(): number {
    throw noContents("fingerprint", this.device);
  }

  free(): void {}
}

function noContents(action: string, device: string): UnsupportedError {
  return new UnsupportedError(
    { headline: `${action}: memory of ${device} has a size and no contents` },
    { field: "phantom" },
  );
}
