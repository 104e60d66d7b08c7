/** Table of the backends and executors that options can name. In the library itself, a backend is a value. */

import { type AlgorithmChoice, type LibraryName, parseProfile } from "../algorithms/index.ts";
import { type Backend, BackendUnavailableError, UnsupportedError } from "../api/index.ts";
import {
  cpu,
  type Executor,
  type ScheduleName,
  type SimOptions,
  sim,
  Trace,
  wasm,
} from "../backends/sim/index.ts";
import { scheduleNames } from "../backends/sim/scheduler.ts";
import type { TcpOptions } from "../backends/tcp/index.ts";
import { findCollective } from "../bench/index.ts";
import type { NcclSetup } from "../golden/case.ts";
import { algorithmFile, namedAlgorithm } from "./algorithms.ts";
import { type BackendSettings, type BackendTable, UsageError } from "./context.ts";
import { type NamedFile, readText } from "./files.ts";
import { graphFiles, machineHelp, machineNamed } from "./machines.ts";
import {
  isNcclSetting,
  libraryNameOf,
  numbersOf,
  separateSettings,
  withSetting,
} from "./nccl-settings.ts";
import { oneOf } from "./options.ts";

const executors: Readonly<Record<string, () => Executor | Promise<Executor>>> = {
  cpu,
  wasm,
  // Shared by all worlds of a command, because kernels are compiled for a device.
  webgpu: async () => {
    const { webgpu } = await import("../backends/sim/executors/webgpu/index.ts");
    return webgpu({ keepDevice: true });
  },
};

/** The option's row in a command's table. */
export const executorOption = {
  executor: {
    value: "NAME",
    help: `sim: moves the data: ${Object.keys(executors).join(", ")} (wasm where it can)`,
  },
} as const;

/** One of each for all worlds of a command: each `wasm()` has a separate memory. */
const created = new Map<string, Executor>();

/**
 * The executor of that name.
 *
 * @throws UsageError for an unknown name.
 */
async function namedExecutor(name: string): Promise<Executor> {
  const make = Object.hasOwn(executors, name) ? executors[name] : undefined;
  const executor = created.get(name) ?? (await make?.());
  if (executor !== undefined) {
    created.set(name, executor);
    return executor;
  }
  throw new UsageError(
    `executor: found "${name}", needs one of ${Object.keys(executors).join(", ")}`,
  );
}

/** Functions that create backends, by name. */
export const backends: BackendTable = {
  sim: async ({ seed = 0, algorithms = {}, trace, link, like, topology, plan, ...rest }) =>
    sim({
      seed,
      schedule: rest.schedule,
      // sim() itself refuses unknown options.
      ...(like !== undefined && { like: like as LibraryName }),
      ...(topology !== undefined && { topology }),
      ...(plan !== undefined && { plan: plan as NonNullable<SimOptions["plan"]> }),
      algorithms: algorithms as AlgorithmChoice,
      ...(link !== undefined && { link }),
      ...(trace instanceof Trace && { trace }),
      strict: rest.strict,
      phantom: rest.phantom,
      ...(rest.machine !== undefined && { machine: rest.machine }),
      ...(rest.executor !== undefined && { executor: await namedExecutor(rest.executor) }),
    }),
  nccl: ncclBackend,
  tcp: tcpBackend,
};

/** Real GPUs. */
async function ncclBackend({ algorithms = {}, ...settings }: BackendSettings): Promise<Backend> {
  const { like, topology, link, devices, plan, readPlan } = settings;
  const algorithm = Object.keys(algorithms)[0];
  refuseSettings("nccl", { algorithm, like, topology, link, ...ofSimulation(settings) });
  const { nccl } = await import("../backends/nccl/index.ts");
  return nccl({
    ...(devices !== undefined && { devices }),
    ...(plan !== undefined && { plan }),
    ...(readPlan !== undefined && { readPlan }),
  });
}

/** One rank in each process. It follows plans as the simulation does. */
async function tcpBackend({ algorithms = {}, ...settings }: BackendSettings): Promise<Backend> {
  const { like, topology, link, plan, comparesCalls = true } = settings;
  refuseSettings("tcp", ofSimulation(settings));
  const { tcp } = await import("../backends/tcp/index.ts");
  return tcp({
    compareCalls: comparesCalls ? "once" : "off",
    // tcp() itself refuses unknown options.
    ...(like !== undefined && { like: like as LibraryName }),
    ...(topology !== undefined && { topology }),
    ...(plan !== undefined && { plan: plan as NonNullable<TcpOptions["plan"]> }),
    ...(link !== undefined && { link }),
    algorithms: algorithms as AlgorithmChoice,
  });
}

/** Settings of the simulation alone. */
function ofSimulation(settings: BackendSettings): object {
  const { seed, trace, schedule, executor, strict, machine } = settings;
  return { seed, trace, schedule, executor, strict, machine };
}

/** Refuses settings that a backend would ignore. */
function refuseSettings(backend: string, given: object): void {
  const [setting] = Object.entries(given).find(([, value]) => value !== undefined) ?? [];
  if (setting === undefined) return;
  throw new UnsupportedError(
    {
      headline: `backend ${backend}: ${setting} cannot be set from here`,
      hint: "use --backend sim",
    },
    { field: setting },
  );
}

/**
 * The backend of that name.
 *
 * @throws BackendUnavailableError for an unknown name; there is no fallback.
 */
export async function namedBackend(
  table: BackendTable,
  name: string,
  settings: BackendSettings,
): Promise<Backend> {
  const make = Object.hasOwn(table, name) ? table[name] : undefined;
  if (make !== undefined) return make(settings);
  throw new BackendUnavailableError({
    headline: `backend ${name}: there is no such backend`,
    hint: `backends are ${Object.keys(table).join(", ")}`,
  });
}

/** The row of `--schedule` in a command's table. */
export const scheduleOption = {
  schedule: { value: "NAME", help: `sim: how ranks resume: ${scheduleNames.join(", ")} (fair)` },
} as const;

/**
 * The schedule of `--schedule`; `undefined` without the option.
 *
 * @throws UsageError for another name.
 */
export function scheduleIn(parsed: {
  readonly text: (name: "schedule") => string | undefined;
}): ScheduleName | undefined {
  const name = parsed.text("schedule");
  return name === undefined ? undefined : oneOf("--schedule", name, scheduleNames);
}

/** The reading of a name by `variantBackend`, for help texts. */
export const variantHelp = `BACKEND is a name and, after a colon, its settings with commas between: sim, sim:seed=7,
sim:allReduce=linear,seed=7, sim:like=nccl-2.28,protocol=LL, nccl:devices=0+1,protocol=LL,
tcp:allReduce=ring. COLLECTIVE=NAME chooses an algorithm of the catalogue or of a file
(sim:allReduce=./line.mjs), like=LIBRARY follows that library's plans, on the machine of
topology=MACHINE. algorithm=Ring, protocol=LL, channels=4, rings=0+2+1, or NCCL's variables,
NCCL_ALGO=allreduce:tree, pin the plans of nccl, and of sim and tcp where these follow NCCL's.
devices=0+1 are the GPUs of nccl. seed=N and schedule=random fix the order in which ranks of sim
resume, executor=cpu moves their data, machine=FILE is the profile of their clock, from
twinccl calibrate.
${machineHelp}`;

/** Refuses a setting that another one, or another option, would replace. */
function refuseTwice(
  option: string,
  key: string,
  seen: Set<string>,
  { algorithms = {}, seed, schedule, executor }: BackendSettings,
): void {
  const given = Object.entries({ seed, schedule, executor }).some(
    ([name, value]) => name === key && value !== undefined,
  );
  const other = Object.hasOwn(algorithms, key) ? "algorithm" : given ? key : undefined;
  if (other === undefined && !seen.has(key)) {
    seen.add(key);
    return;
  }
  const by = other === undefined ? "" : `, by --${other} too`;
  throw new UsageError(`${option}: ${key} is set twice${by}`);
}

/**
 * A backend with settings in its name: `sim`, `sim:seed=7`, `sim:allReduce=linear,seed=7`; `settings` are the values of other
 * options. The name's executor overrides `defaultExecutor`.
 *
 * @throws UsageError for a setting that does not exist or stands twice. BackendUnavailableError for an unavailable backend.
 */
export async function variantBackend(
  table: BackendTable,
  option: string,
  text: string,
  settings: BackendSettings = {},
  defaultExecutor?: string,
): Promise<Backend> {
  const [name = "", ...rest] = text.split(":");
  let { seed, schedule, like, topology, algorithms, devices, executor, machine } = settings;
  let setup: NcclSetup = {};
  const seen = new Set<string>();
  for (const setting of rest.length === 0 ? [] : separateSettings(rest.join(":"))) {
    // A path may hold an equals sign too.
    const [key = "", ...values] = setting.split("=");
    const value = values.join("=");
    const row = findCollective(key);
    refuseTwice(option, row?.collective ?? key, seen, settings);
    if (key === "seed" && /^\d+$/.test(value)) seed = Number(value);
    else if (key === "schedule") schedule = oneOf(`${option}: schedule`, value, scheduleNames);
    else if (key === "like") like = libraryNameOf(`${option}: like`, value);
    else if (key === "topology") topology = machineNamed(`${option}: topology`, value);
    else if (key === "executor") executor = value;
    else if (key === "machine") {
      machine = parseProfile(readText(value, `${option}: machine`), value);
    } else if (key === "devices" && name === "nccl") devices = numbersOf(option, key, value);
    else if (isNcclSetting(key)) setup = withSetting(option, setup, setting);
    else if (row !== undefined && value !== "") {
      const { choice } = await namedAlgorithm(`${option}: ${key}`, row.collective, value);
      algorithms = { ...algorithms, [row.collective]: choice };
    } else {
      throw new UsageError(
        `${option}: found "${setting}" in "${text}", needs seed=N, schedule=NAME, like=LIBRARY, topology=MACHINE, executor=NAME, machine=FILE, a setting of NCCL or COLLECTIVE=ALGORITHM`,
      );
    }
  }
  return namedBackend(table, name, {
    ...settings,
    seed,
    schedule,
    algorithms,
    like,
    topology,
    plan: Object.keys(setup).length === 0 ? settings.plan : { ...settings.plan, ...setup },
    devices,
    executor: executor ?? defaultExecutor,
    machine,
  });
}

/** The files that a backend's name names. */
export function backendFiles(option: string, text: string | undefined): NamedFile[] {
  const [, ...settings] = (text ?? "").split(":");
  return separateSettings(settings.join(":")).flatMap((setting) => {
    const [key = "", ...values] = setting.split("=");
    const value = values.join("=");
    const file = key === "machine" ? value : algorithmFile(value);
    const paths = key === "topology" ? graphFiles(value) : [file];
    return paths.map((path) => ({ what: `${key} of ${option}`, path }));
  });
}
