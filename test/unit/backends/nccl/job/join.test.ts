/** The choice of a GPU by `connect`: processes on one machine that see some of its fake GPUs, and meet in a real store. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join as joinPath } from "node:path";
import { setEnvironmentData } from "node:worker_threads";
import { type CommError, type ConnectedCommunicator, connect } from "twinccl";
import type { NcclOptions } from "twinccl/nccl";
import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { join } from "../../../../../src/backends/nccl/join.ts";
import { ProcessDevice } from "../../../../../src/backends/nccl/process/visible-devices.ts";
import { type FakeGpus, librariesOf, migOf, uuidOf } from "../../../../support/fake-gpus/index.ts";
import { place } from "../../../job/stores.ts";
import { cleanGpus } from "../gpus.ts";

afterEach(() => vi.unstubAllEnvs());

/** A process: its own list of devices, and its own CUDA. */
class Process {
  readonly env: NodeJS.ProcessEnv;
  readonly #own: ProcessDevice;
  readonly #gpus: FakeGpus;
  readonly #libraries: FakeGpus["setup"]["libraries"];

  constructor(gpus: FakeGpus, list: string | undefined, gpusHere = gpus.machine.devices) {
    this.env = list === undefined ? {} : { CUDA_VISIBLE_DEVICES: list };
    this.#own = new ProcessDevice(this.env, () => gpusHere);
    this.#gpus = gpus;
    this.#libraries = librariesOf(gpus, this.env);
  }

  /** Connects as a rank of a job with all ranks on this machine. */
  connect(
    job: Job,
    rank: number,
    options: NcclOptions = {},
    more: Readonly<Record<string, string | number>> = {},
  ): Promise<ConnectedCommunicator> {
    const libraries = this.#libraries;
    const { setup } = this.#gpus;
    job.setVariables(rank, more);
    return connect({
      timeoutMs: 5000,
      backend: {
        name: "nccl",
        probe: () => ({ ok: true, reason: "fake GPUs" }),
        open: () => Promise.reject(new Error("this backend only joins")),
        join: (request) =>
          join(options, request, () => ({ ...setup, libraries }), {
            own: this.#own,
            findDevices: async () => ({ libraries, visible: libraries.cuda.deviceCount() }),
          }),
      },
    });
  }

  /** The device that its rank works on, as the machine counts them. */
  deviceOf(comm: ConnectedCommunicator): number | "host" | undefined {
    const data = comm.alloc("uint8", 1);
    const home = this.#gpus.machine.memory.at(data.ptr)?.home;
    data.dispose();
    return home;
  }
}

/** A job with ranks that meet at a file. */
class Job {
  readonly #size: number;
  readonly #folder = mkdtempSync(joinPath(tmpdir(), "twinccl-join-"));

  constructor(size: number) {
    this.#size = size;
    onTestFinished(() => rmSync(this.#folder, { recursive: true, force: true }));
  }

  /** Sets a rank's launcher variables: they are read when `connect` is called. */
  setVariables(rank: number, more: Readonly<Record<string, string | number>>): void {
    const numbers = { RANK: rank, SIZE: this.#size, LOCAL_RANK: rank, LOCAL_SIZE: this.#size };
    const variables = { ...numbers, JOB_ID: "job", RENDEZVOUS_FILE: this.#folder, ...more };
    for (const [name, value] of Object.entries(variables))
      vi.stubEnv(`TWINCCL_${name}`, `${value}`);
  }
}

/** The devices that the ranks of a job get, each process with the list that is given. */
async function devicesOf(
  gpus: FakeGpus,
  processes: readonly Process[],
  options: NcclOptions = {},
): Promise<unknown[]> {
  const job = new Job(processes.length);
  const comms = await Promise.all(processes.map((each, rank) => each.connect(job, rank, options)));
  try {
    const sums = comms.map(async (comm) => {
      const data = comm.alloc("int32", 1).fill(comm.rank + 1);
      await comm.allReduce({ send: data, op: "sum" });
      const [sum] = await data.toHost();
      data.dispose();
      return sum;
    });
    const all = (processes.length * (processes.length + 1)) / 2;
    expect(await Promise.all(sums)).toEqual(processes.map(() => all));
    return comms.map((comm, rank) => processes[rank]?.deviceOf(comm));
  } finally {
    await Promise.all(comms.map((comm) => comm.close()));
    expect(gpus.machine.stuck()).toEqual([]);
  }
}

/** The error of a rank; the others of its job have a device. */
async function errorOfRank(
  gpus: FakeGpus,
  size: number,
  { rank, process }: { readonly rank: number; readonly process: Process },
  options: NcclOptions = {},
): Promise<CommError | undefined> {
  const job = new Job(size);
  const joining = Array.from({ length: size }, (_, each) =>
    each === rank ? process.connect(job, rank, options) : new Process(gpus, "0").connect(job, each),
  );
  return (await errorsOf(joining))[rank];
}

const errorsOf = async (joining: readonly Promise<unknown>[]): Promise<CommError[]> =>
  (await Promise.allSettled(joining)).map((each) => (each as PromiseRejectedResult).reason);

describe("a process takes the GPU of its local rank", () => {
  test.each<[string, (string | undefined)[], number[]]>([
    ["where nothing is listed", [undefined, undefined, undefined], [0, 1, 2]],
    ["of those that are listed", ["5,2, 7", "5,2, 7", "5,2, 7"], [5, 2, 7]],
    ["where they are listed by name", [0, 1].map(() => `${uuidOf(6)},${uuidOf(1)}`), [6, 1]],
    ["or its only one", ["3", "0", "6"], [3, 0, 6]],
    ["or its only one by name", [uuidOf(4), uuidOf(2)], [4, 2]],
    ["or its only instance of one", [migOf(4), migOf(2)], [4, 2]],
  ])("%s", async (_, lists, expected) => {
    const gpus = cleanGpus();
    const processes = lists.map((list) => new Process(gpus, list));
    expect(await devicesOf(gpus, processes)).toEqual(expected);
    // Nothing holds a thread that NCCL's start may keep.
    expect(gpus.machine.count("initRank")).toBe(0);
  });

  test("where the driver shows a container only one, and no list does", async () => {
    const gpus = cleanGpus({ devices: 1 });
    const process = new Process(gpus, undefined, 1);
    const job = new Job(2);
    const late = process.connect(job, 1);
    expect(process.env).toEqual({});
    const [error] = await errorsOf([late, new Process(gpus, undefined, 1).connect(job, 0)]);
    expect(error?.message).toMatch(/ranks 0, 1 all use the GPU/);
  });

  test("also where the driver does not show their number", async () => {
    const gpus = cleanGpus();
    const processes = [0, 1].map(() => new Process(gpus, undefined, 0));
    expect(await devicesOf(gpus, processes)).toEqual([0, 1]);
  });
});

test("processes of one host that see the same GPU alone are refused by rank, before NCCL", async () => {
  const gpus = cleanGpus();
  const job = new Job(3);
  const lists = [uuidOf(3), "1", "3"];
  const joining = lists.map((list, rank) => new Process(gpus, list).connect(job, rank));
  for (const error of await errorsOf(joining)) {
    expect(error).toMatchObject({ code: "ERR_COMM_BACKEND", field: "devices", ranks: [0, 2] });
    expect(error.message).toMatch(/ranks 0, 2 all use the GPU \S+ 0000:13:00\.0/);
  }
});

test("a process connects again on the GPU that it took", async () => {
  const gpus = cleanGpus();
  const processes = [undefined, "4,6", "7"].map((list) => new Process(gpus, list));
  for (let restart = 0; restart < 3; restart++) {
    expect(await devicesOf(gpus, processes)).toEqual([0, 6, 7]);
  }
  expect(processes.map(({ env }) => env["CUDA_VISIBLE_DEVICES"])).toEqual([undefined, "6", "7"]);
});

describe("devices that are named", () => {
  test("are taken instead of the local rank's, also again", async () => {
    const gpus = cleanGpus();
    const processes = [0, 1].map(() => new Process(gpus, "0,1,2,3,4,5"));
    for (let restart = 0; restart < 2; restart++) {
      expect(await devicesOf(gpus, processes, { devices: [5, 2] })).toEqual([5, 2]);
    }
  });

  test("are counted among the visible ones", async () => {
    const gpus = cleanGpus();
    const process = new Process(gpus, "3");
    const error = await errorOfRank(gpus, 2, { rank: 1, process }, { devices: [3] });
    expect(error).toMatchObject({ code: "ERR_COMM_BACKEND", field: "devices", rank: 1 });
    expect(error?.message).toMatch(/rank 1 is to use device 3, but 1 are visible/);
    expect(error?.message).toMatch(/count from 0 among those that CUDA_VISIBLE_DEVICES shows/);
  });

  test("must be the one that the process took before", async () => {
    const gpus = cleanGpus();
    const processes = [0, 1].map(() => new Process(gpus, undefined));
    expect(await devicesOf(gpus, processes)).toEqual([0, 1]);
    const process = processes[1] as Process;
    const error = await errorOfRank(gpus, 2, { rank: 1, process }, { devices: [0] });
    expect(error?.message).toMatch(/is to use device 0, but its process took device 1 before/);
  });

  test("are one for this process, or one for each local rank", async () => {
    const gpus = cleanGpus();
    const [error] = await errorsOf([
      new Process(gpus, undefined).connect(new Job(3), 2, { devices: [0, 1] }),
    ]);
    expect(error?.message).toMatch(/devices: found 2, local rank 2 has none of them/);
  });
});

test.each<readonly [NcclOptions, NcclOptions]>([
  [{ plan: { algorithm: "Ring" } }, {}],
  [{ plan: { rings: [0, 1] } }, { plan: { rings: [1, 0] } }],
])(
  "ranks that pin different plans are refused on all of them, before NCCL: %j and %j",
  async (...pins) => {
    const gpus = cleanGpus();
    const job = new Job(2);
    const joining = pins.map((pin, rank) =>
      new Process(gpus, undefined).connect(job, rank, pin).then((comm) => comm.close()),
    );
    for (const [rank, error] of (await errorsOf(joining)).entries()) {
      expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "plan", rank, size: 2 });
      expect(error.message).toMatch(/plan: the ranks of "job" pass different ones to nccl\(\)/);
    }
    expect(gpus.machine.count("uniqueId")).toBe(0);
  },
);

test("the error of a rank with too short a list shows the number of visible devices", async () => {
  const gpus = cleanGpus();
  const error = await errorOfRank(gpus, 4, { rank: 3, process: new Process(gpus, "0,1") });
  expect(error).toMatchObject({ rank: 3, field: "devices" });
  expect(error?.message).toMatch(/rank 3 is to use device 3, but 2 are visible/);
});

test.each([
  ["0,1,-1,3", 3, 2],
  ["0,1,,2", 2, 2],
  ["0,1,2,-1,4", 4, 3],
  ["0,1,8,2", 3, 2],
])("CUDA_VISIBLE_DEVICES=%s hides the GPU of rank %i", async (list, rank, visible) => {
  const gpus = cleanGpus();
  const process = new Process(gpus, list);
  const error = await errorOfRank(gpus, 8, { rank, process });
  expect(error).toMatchObject({ code: "ERR_COMM_BACKEND", rank, field: "devices" });
  expect(error?.message).toContain(`is to use device ${rank}, but ${visible} are visible`);
  expect(process.env["CUDA_VISIBLE_DEVICES"]).toBe(list);
});

test("the secret leaves the environment with the first connect, and serves later ones", async () => {
  const gpus = cleanGpus();
  onTestFinished(() => setEnvironmentData("TWINCCL_SECRET", undefined));
  const processes = [0, 1].map(() => new Process(gpus, undefined));
  const { server, secret, jobId } = await place(2);
  const job = new Job(2);
  vi.stubEnv("TWINCCL_SECRET", secret);
  for (let restart = 0; restart < 2; restart++) {
    const joining = processes.map((each, rank) => {
      const variables = {
        STORE: "launcher",
        ADDRESS: server.host,
        PORT: server.port,
        JOB_ID: jobId,
      };
      return each.connect(job, rank, {}, variables);
    });
    expect(process.env).not.toHaveProperty("TWINCCL_SECRET");
    const comms = await Promise.all(joining);
    expect(comms.map(({ rank, size }) => [rank, size])).toEqual([
      [0, 2],
      [1, 2],
    ]);
    await Promise.all(comms.map((comm) => comm.close()));
  }
});

test("NCCL connects the ranks of a job by a setting before its first use, and no other ranks", async () => {
  vi.stubEnv("NCCL_RUNTIME_CONNECT", undefined);
  const gpus = cleanGpus();
  const settings: (string | undefined)[] = [];
  const id = gpus.setup.libraries.nccl.uniqueId;
  vi.spyOn(gpus.setup.libraries.nccl, "uniqueId").mockImplementation(() => {
    settings.push(process.env["NCCL_RUNTIME_CONNECT"]);
    return id();
  });
  for (const size of [1, 2]) {
    await devicesOf(
      gpus,
      Array.from({ length: size }, () => new Process(gpus, undefined)),
    );
  }
  expect(settings).toEqual([undefined, "0"]);
});
