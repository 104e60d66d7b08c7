/**
 * Phantom data: memory that has an address and a size and nothing in it, so that a program of a thousand ranks with
 * gigabytes each is checked, matched, timed and traced on a machine that could not hold what it moves.
 */
import { InvalidArgumentError, UnsupportedError } from "../../api/index.ts";
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

  /** Nothing: whatever was filled in could never be seen. */
  fill(): void {}

  fingerprint(): number {
    throw noContents("fingerprint", this.device);
  }

  free(): void {}
}

/** Refuses options that ask for contents. */
export function assertPhantom(options: {
  readonly executor?: unknown;
  readonly strict?: boolean | undefined;
}): void {
  const field = options.executor !== undefined ? "executor" : "strict";
  if (options.executor === undefined && options.strict !== true) return;
  const why =
    field === "executor"
      ? "nothing is moved, so no executor is needed"
      : "lending is proven by checksums of contents, and there are none";
  throw new InvalidArgumentError(
    {
      headline: `sim: ${field}: given with phantom: ${why}`,
      hint: `leave ${field} or phantom out`,
    },
    { field },
  );
}

function noContents(action: string, device: string): UnsupportedError {
  return new UnsupportedError(
    { headline: `${action}: memory of ${device} has a size and no contents` },
    { field: "phantom" },
  );
}
