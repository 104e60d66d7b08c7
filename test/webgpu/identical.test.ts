/** The same random programs give the same bits on the device as on cpu(): all calls, dtypes, operators and plans. */
import { cpu, sim } from "twinccl/sim";
import { webgpu } from "twinccl/webgpu";
import { identical, type Subject } from "../property/identical.ts";
import { adapter, describeWebgpu, sharedDevice } from "../support/webgpu.ts";

const device = adapter.ok ? await sharedDevice() : undefined;
const executor = webgpu(device && { device });
const algorithms = { allReduce: "linear" } as const;

const subjects: readonly Subject[] = [
  { name: "cpu", plan: "ring", open: () => sim({ executor: cpu() }) },
  { name: "webgpu", plan: "ring", open: () => sim({ executor }), keepsWorlds: true },
  { name: "cpu, linear", plan: "linear", open: () => sim({ executor: cpu(), algorithms }) },
  {
    name: "webgpu, linear",
    plan: "linear",
    open: () => sim({ executor, algorithms }),
    keepsWorlds: true,
  },
];

describeWebgpu("on WebGPU", () => {
  identical(subjects, {
    runs: { exact: 40, bits: 120 },
    programs: { exact: {}, bits: { payload: "bits" } },
  });
});
