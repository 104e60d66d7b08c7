/** Ranks of different processes on fake GPUs that met in a real store: here the processes share one thread. */

import { type ConnectedCommunicator, connect } from "twinccl";
import type { Session } from "twinccl/backend";
import { onTestFinished } from "vitest";
import { openJoined } from "../../../../../src/backends/nccl/open.ts";
import type { CompareCalls } from "../../../../../src/job/before-calls.ts";
import type { FakeGpus } from "../../../../support/fake-gpus/index.ts";
import { place } from "../../../job/stores.ts";
import { cleanGpus } from "../gpus.ts";

/** Connects so many ranks, each a session of its own. */
export async function connected(
  size: number,
  compareCalls: CompareCalls,
  { setup }: FakeGpus = cleanGpus(),
  { callSites = false } = {},
): Promise<ConnectedCommunicator[]> {
  const members = await (await place(size)).joinAll();
  const comms = await Promise.all(
    members.map((member, device) => {
      const join = (request: Parameters<typeof openJoined>[3]): Promise<Session> =>
        openJoined({ ...setup, compareCalls }, { device }, member, request);
      const open = (): never => {
        throw new Error("this backend only joins");
      };
      const probe = () => ({ ok: true, reason: "fake GPUs" });
      return connect({ backend: { name: "nccl", probe, open, join }, callSites });
    }),
  );
  onTestFinished(async () => {
    await Promise.all(comms.map((comm) => comm.close()));
  });
  return comms;
}
