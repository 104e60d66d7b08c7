/** Claims about NCCL's bits follow the order of the GPUs on the bus of this machine, not the numbers that CUDA gives them. */
import { spawnSync } from "node:child_process";
import { expect } from "vitest";
import { jobPath } from "./launched-jobs.ts";
import { gpuSizes, testOn } from "./machine.ts";

const found = (await gpuSizes()).length;

/** The identifiers of the GPUs that are seen here, in the order of their bus ids as the driver's own tool gives them. */
function onTheBus(): string[] {
  const query = ["--query-gpu=pci.bus_id,uuid", "--format=csv,noheader"];
  const { stdout } = spawnSync("nvidia-smi", query, { encoding: "utf8" });
  const rows = stdout.trim().split("\n");
  return rows.sort().map((row) => row.split(", ")[1] as string);
}

/** The claims of a process that sees these GPUs, numbered in this order, for ranks on the devices of each list. */
function claims(seen: readonly string[], ...lists: readonly string[]): string[] {
  const env = { ...process.env, CUDA_VISIBLE_DEVICES: seen.join(), NCCL_NVLS_ENABLE: "0" };
  const { stdout, stderr } = spawnSync(process.execPath, [jobPath("claims.mjs"), ...lists], {
    ...{ encoding: "utf8", env, timeout: 60_000 },
  });
  if (stdout === "") throw new Error(stderr);
  return JSON.parse(stdout) as string[];
}

const unordered = /the ranks are not in the order of their devices/;

testOn(2, found)("ranks in the order of the bus have a claim, others do not", async () => {
  const [first, second] = onTheBus() as [string, string];
  const [up, down] = claims([first, second], "0,1", "1,0");
  expect(up).not.toMatch(unordered);
  expect(down).toMatch(unordered);
});

testOn(2, found)("so it is where CUDA's numbers run the other way", async () => {
  const [first, second] = onTheBus() as [string, string];
  const [up, down] = claims([second, first], "0,1", "1,0");
  expect(up).toMatch(unordered);
  expect(down).not.toMatch(unordered);
});

testOn(4, found)("and with gaps between the devices", async () => {
  const seen = onTheBus();
  const [gaps, across] = claims(seen, "0,1,3", "0,3,1");
  expect(gaps).not.toMatch(unordered);
  expect(across).toMatch(unordered);
});
