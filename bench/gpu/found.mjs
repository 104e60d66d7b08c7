// The GPUs of this machine, as its driver lists them.
import { spawnSync } from "node:child_process";

/** Names of the GPUs, and the driver; none where there is no driver. */
export function gpus() {
  const query = ["--query-gpu=name,driver_version", "--format=csv,noheader"];
  const { status, stdout } = spawnSync("nvidia-smi", query, { encoding: "utf8" });
  const lines = status === 0 ? stdout.trim().split("\n") : [];
  const cells = lines.map((line) => line.split(", "));
  return { names: cells.map(([name]) => name), driver: cells[0]?.[1] ?? null };
}

/** A pointer to NCCL's measurement, after one of the simulation alone. */
export function besideText({ names }) {
  if (names.length === 0) {
    return "the simulation alone: there is no GPU here, on which npm run bench:gpu measures NCCL beside it";
  }
  return `the simulation alone: npm run bench:gpu measures NCCL on ${names.join(", ")}, beside the simulation in process and as it predicts`;
}
