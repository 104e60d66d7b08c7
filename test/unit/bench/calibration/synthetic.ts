/** Results of a machine that exists as a profile alone: its times with noise, as `twinccl bench --calibration` writes them. */
import {
  type CallMode,
  choiceOf,
  type MachineProfile,
  machineProfiles,
  testedBytes,
  timeOf,
} from "../../../../src/algorithms/index.ts";
import {
  type CalibrationCall,
  calibrationCalls,
} from "../../../../src/bench/calibration/sweeps.ts";

/** A machine unlike the start of the fit: slower and quicker by several tens of per cent. */
export function plantedProfile(): MachineProfile {
  const start = machineProfiles["h200x8"] as MachineProfile;
  let at = 0;
  const planted = (value: unknown): unknown => {
    if (typeof value === "number") return value * [1.3, 0.8, 1.1, 0.75, 1.2][at++ % 5]!;
    return Object.fromEntries(
      Object.entries(value as object).map(([name, each]) => [name, planted(each)]),
    );
  };
  return { ...start, numbers: planted(start.numbers) as MachineProfile["numbers"] };
}

/** Noise that is the same in every run: about normal, of deviation 1. */
function noiseSource(): () => number {
  let state = 12345;
  const uniform = (): number => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return state / 2 ** 32;
  };
  return () => {
    let sum = -6;
    for (let i = 0; i < 12; i++) sum += uniform();
    return sum;
  };
}

/** The document of one world; `kept` leaves calls out. */
export function calibrationDocument(
  profile: MachineProfile,
  ranks: number,
  {
    noise = 0.02,
    kept = () => true as boolean,
  }: {
    readonly noise?: number;
    readonly kept?: (call: CalibrationCall, bytes: number) => boolean;
  } = {},
): Record<string, unknown> {
  const next = noiseSource();
  const runs = new Map<string, { mode: CallMode; results: object[] }>();
  for (const call of calibrationCalls(ranks, "each")) {
    const bytes = testedBytes(call);
    if (!kept(call, bytes)) continue;
    const time = timeOf(profile, call).us * Math.exp(noise * next());
    const { collective, count, dtype, mode } = call;
    const choice = choiceOf(profile, call)?.name;
    const key = JSON.stringify(mode);
    const run = runs.get(key) ?? { mode, results: [] };
    runs.set(key, run);
    run.results.push({
      ...{ collective, backend: "nccl", ranks, count, type: dtype, size: bytes },
      redop: collective.startsWith("all") && collective !== "allReduce" ? "none" : "sum",
      algorithm: collective === "allToAll" ? "none" : choice,
      root: collective === "broadcast" ? 0 : -1,
      out_of_place: { time, alg_bw: bytes / time / 1000, bus_bw: 1, nwrong: null, checked: 0 },
      in_place: null,
    });
  }
  return {
    nccl: "2.28.9",
    gpus: Array.from({ length: 8 }, () => "NVIDIA H200"),
    date: "2026-11-26T10:00:00Z",
    commit: "abcdef0",
    runs: [...runs.values()].map(({ mode, results }) => ({
      timing: "measured",
      mode: mode.launch,
      symmetric: mode.memory === "symmetric",
      latency: mode.awaited,
      processes: ranks,
      results,
    })),
  };
}
