/** Fake GPUs: CUDA and NCCL in memory, for tests of what the NCCL backend builds on top of both. */
import type { Backend } from "twinccl";
import type { NcclOptions } from "twinccl/nccl";
import { placesFor } from "../../../src/backends/nccl/devices.ts";
import type { Libraries } from "../../../src/backends/nccl/discovery/libraries.ts";
import { openLocal, type Setup } from "../../../src/backends/nccl/open.ts";
import type { NcclSession } from "../../../src/backends/nccl/session.ts";
import { fakeCuda } from "./cuda.ts";
import { Machine, type MachineOptions } from "./machine.ts";
import { type FakeNccl, fakeNccl } from "./nccl.ts";

export { cudaError, type Machine, ncclError } from "./machine.ts";
export { librariesOf, migOf, uuidOf } from "./visible.ts";

/** A machine and the libraries that run on it. */
export interface FakeGpus {
  readonly machine: Machine;
  readonly nccl: FakeNccl;
  readonly setup: Setup;
  /** Sessions that the backend has opened. */
  readonly sessions: readonly NcclSession[];
  /** A backend that places ranks on the first GPUs, or on the given ones. */
  backend(devices?: readonly number[], streams?: readonly bigint[]): Backend;
}

/** Fake GPUs with nothing on them. */
export function fakeGpus(
  options: MachineOptions & Pick<NcclOptions, "timeoutMs" | "staging"> = {},
): FakeGpus {
  const machine = new Machine(options);
  const nccl = fakeNccl(machine);
  const libraries: Libraries = {
    cuda: fakeCuda(machine),
    nccl: nccl.calls,
    ncclVersion: machine.ncclVersion,
  };
  const { timeoutMs, staging } = options;
  const setup: Setup = { libraries, config: {}, timeoutMs, staging };
  const sessions: NcclSession[] = [];
  return {
    machine,
    nccl,
    setup,
    sessions,
    backend: (devices, streams) => ({
      name: "nccl",
      probe: () => ({ ok: true, reason: "fake GPUs" }),
      async open(request) {
        const options = { ...(devices && { devices }), ...(streams && { streams }) };
        const session = await openLocal(setup, placesFor(options, request), request.name);
        sessions.push(session);
        return session;
      },
    }),
  };
}
