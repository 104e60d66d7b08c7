// Whether this machine has a WebGPU adapter, and what to say where it has none.

import { create } from "webgpu";

/** True when Dawn finds one. */
export async function hasAdapter() {
  try {
    return (await create([]).requestAdapter()) !== null;
  } catch {
    return false;
  }
}

export const noAdapter =
  "no WebGPU adapter: docs/webgpu.md tells how to get one in software (Debian's chromium and libvulkan1)";
