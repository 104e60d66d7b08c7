/** The suite's parts for ranks in processes of their own, which name a device by the number that all processes know it by. */
import type { Communicator } from "twinccl";
import { type ConformanceParts, conformanceParts } from "twinccl/testing";

function placement(comm: Communicator): ReturnType<ConformanceParts["placement"]> {
  return { ...conformanceParts.placement(comm), device: deviceOf(comm) };
}

/** A process that was shown a single GPU calls it `cuda:0`. */
function deviceOf({ device }: Communicator): string {
  const [kind = "", number = ""] = device.split(":");
  if (kind !== "cuda") return device;
  const visible = process.env["CUDA_VISIBLE_DEVICES"];
  if (visible === undefined) return `GPU ${number}`;
  const shown = visible.split(",")[Number(number)];
  return shown === undefined ? `${device}, not shown` : `GPU ${shown.trim()}`;
}

/** All of them, by name. */
export const parts = { ...conformanceParts, placement } satisfies ConformanceParts;
