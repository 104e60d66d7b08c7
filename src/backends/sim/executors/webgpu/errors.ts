/** Faults of a WebGPU device once it is open. */
import { CommError, type CommErrorFacts } from "../../../../api/index.ts";

/** `lost`: the device is gone; the others: it refused memory, a command, or failed inside. */
export type WebgpuFault = "lost" | "out-of-memory" | "validation" | "internal";

const hints: { readonly [F in WebgpuFault]: string } = {
  lost: "what was on the device is gone: close the world and create another one, which opens the device again",
  "out-of-memory": "dispose buffers, use smaller ones, or open fewer worlds on this adapter",
  validation:
    "check the usage and size of GPUBuffers that were handed in (STORAGE, COPY_SRC, COPY_DST); without any, report this message",
  internal:
    "close the world and create another one; when it fails again, use cpu() and report this message",
};

/** The hint for a lost device of the caller's own. */
const lostOwn =
  "what was on the device is gone, and it is yours: close the world, and pass a new device to webgpu({ device })";

/** The meaning of a fault, beside WebGPU's own words. */
export interface WebgpuErrorFacts extends CommErrorFacts {
  /** The device is the caller's own. */
  readonly foreign?: boolean | undefined;
}

/** A WebGPU device failed. `adapter` names it, `fault` says how, and the message ends with the next step. */
export class WebgpuError extends CommError {
  readonly code = "ERR_COMM_WEBGPU";
  readonly adapter: string;
  readonly fault: WebgpuFault;

  constructor(adapter: string, fault: WebgpuFault, detail: string, facts: WebgpuErrorFacts = {}) {
    const what = { lost: "the device was lost", "out-of-memory": "the device has no memory left" };
    const found = fault === "lost" || fault === "out-of-memory" ? what[fault] : `${fault} error`;
    const hint = fault === "lost" && facts.foreign === true ? lostOwn : hints[fault];
    super({ headline: `webgpu (${adapter}): ${found}: ${detail}`, hint }, facts);
    this.adapter = adapter;
    this.fault = fault;
  }
}
