/** Fake GPUs: CUDA and NCCL in memory, for tests of what the NCCL backend builds on top of both. */
import type { Backend } from "twinccl";
import type { Libraries } from "../../../src/backends/nccl/libraries.ts";
import { openHere, type Setup } from "../../../src/backends/nccl/open.ts";
import type { NcclSession } from "../../../src/backends/nccl/session.ts";
import { fakeCuda } from "./cuda.ts";
import { Machine, type MachineOptions } from "./machine.ts";
import { type FakeNccl, fakeNccl } from "./nccl.ts";

export { cudaError, type Machine, ncclError } from "./machine.ts";

/** A machine and the libraries that run on it. */
export interface FakeGpus {
  readonly machine: Machine;
  readonly nccl: FakeNccl;
  readonly setup: Setup;
  /** Sessions that the backend has opened. */
  readonly sessions: readonly NcclSession[];
  /** A backend whose worlds have their ranks on the first GPUs, or on those that are named. */
  backend(devices?: readonly number[]): Backend;
}

/** Fake GPUs with nothing on them. */
export function fakeGpus(options: MachineOptions & { readonly timeoutMs?: number } = {}): FakeGpus {
  const machine = new Machine(options);
  const nccl = fakeNccl(machine);
  const libraries: Libraries = {
    cuda: fakeCuda(machine),
    nccl: nccl.calls,
    ncclVersion: machine.ncclVersion,
    trials: [],
  };
  const setup: Setup = { libraries, config: {}, timeoutMs: options.timeoutMs };
  const sessions: NcclSession[] = [];
  return {
    machine,
    nccl,
    setup,
    sessions,
    backend: (devices) => ({
      name: "nccl",
      probe: () => ({ ok: true, reason: "fake GPUs" }),
      async open({ size, name }) {
        const chosen = devices ?? Array.from({ length: size }, (_, rank) => rank);
        const session = openHere(setup, chosen, name);
        sessions.push(session);
        return session;
      },
    }),
  };
}
