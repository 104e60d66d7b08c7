/** Processes of a job choose one backend together, on machines with GPUs of a library that does nothing. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { BackendUnavailableError } from "twinccl";
import { beforeAll, describe, expect, test } from "vitest";
import { agreeOnBackend, optionText } from "../../../src/job/agreed-backend.ts";
import { compileLibrary, compiler } from "../../support/c-library.ts";
import { freePort } from "../../support/free-port.ts";
import { longTest } from "../../support/long-test.ts";
import { runScript } from "../../support/script-jobs.ts";
import { scratch } from "./launched.ts";

/** The backends that a rank passes, by the word that names them. */
const backends = `{
  choice: () => firstAvailable(nccl(), tcp()),
  simulated: () => firstAvailable(nccl(), sim()),
  nccl: () => nccl(),
  shared: () => firstAvailable(nccl({ devices: [0] }), tcp()),
  tcp: () => tcp(),
  doubling: () => tcp({ algorithms: { allReduce: "recursive-doubling" } }),
  linear: () => tcp({ algorithms: { allReduce: "linear" } }),
  always: () => tcp({ compareCalls: "always" }),
  comparing: () => nccl({ compareCalls: "once" }),
}`;

/** The outcome of a rank. */
interface Outcome {
  readonly backend?: string;
  readonly sum?: number;
  readonly code?: string;
  readonly message?: string;
  readonly ranks?: readonly number[];
  readonly ms: number;
}

/** Writes the script of a rank: connects with the backend of its argument, and prints the outcome. */
function joining(): string {
  const dist = new URL("../../../dist/", import.meta.url);
  const entry = (path: string): string => JSON.stringify(new URL(path, dist).href);
  const path = scratch("joining.mjs");
  writeFileSync(
    path,
    `import { connect, firstAvailable } from ${entry("api/index.js")};
     import { nccl } from ${entry("backends/nccl/index.js")};
     import { sim } from ${entry("backends/sim/index.js")};
     import { tcp } from ${entry("backends/tcp/index.js")};
     const words = process.argv.slice(2);
     const word = words[process.env.TWINCCL_RANK] ?? words[0];
     const began = performance.now();
     const say = (outcome) => {
       const ms = performance.now() - began;
       process.stdout.write("result " + JSON.stringify({ ...outcome, ms }) + "\\n");
     };
     try {
       const comm = await connect({ backend: ${backends}[word](), timeoutMs: 20_000 });
       const send = comm.alloc("float32", 3).fill(comm.rank + 1);
       await comm.allReduce({ send, op: "sum" });
       const [sum] = comm.backend === "tcp" ? await send.toHost() : [];
       say({ backend: comm.backend, sum });
       await comm.close();
     } catch ({ code, message, ranks }) {
       say({ code, message, ranks });
     }`,
  );
  return path;
}

const reason = "missing" in compiler ? ` (skipped: ${compiler.missing})` : "";

describe.skipIf(reason !== "")(`ranks of a job${reason}`, () => {
  let path = "";
  beforeAll(() => {
    path = joining();
  });

  /** The variables of a machine with so many GPUs. */
  const machine = (devices: number): NodeJS.ProcessEnv => {
    if (devices === 0) return { TWINCCL_CUDART_LIBRARY: "/nowhere/libcudart.so" };
    const source = new URL("../../../bench/native/inert.c", import.meta.url);
    const library = compileLibrary(source, `inert-${devices}.so`, { DEVICES: devices });
    const shown = Array.from({ length: devices }, (_, device) => device).join();
    return {
      ...{ TWINCCL_CUDART_LIBRARY: library, TWINCCL_NCCL_LIBRARY: library },
      CUDA_VISIBLE_DEVICES: shown,
    };
  };

  /** Launches ranks on one machine. */
  const launched = async (
    size: number,
    devices: number,
    ...words: readonly string[]
  ): Promise<(Outcome | undefined)[]> => {
    const { results, text } = await runScript<Outcome>(size, path, words, {
      env: machine(devices),
    });
    expect(results, text).not.toContain(undefined);
    return [...results];
  };

  const onTcp = (size: number): unknown[] =>
    Array.from({ length: size }, () =>
      expect.objectContaining({ backend: "tcp", sum: (size * (size + 1)) / 2 }),
    );

  test("take processes where the machine has 2 GPUs for 3 ranks", async () => {
    expect(await launched(3, 2, "choice")).toEqual(onTcp(3));
  });

  longTest("take processes where the machine has no GPU, or one", async () => {
    for (const devices of [0, 1]) expect(await launched(3, devices, "choice")).toEqual(onTcp(3));
  });

  longTest("take GPUs where each rank has one", async () => {
    const outcomes = await launched(3, 3, "choice");
    expect(outcomes.map((each) => each?.backend)).toEqual(["nccl", "nccl", "nccl"]);
  });

  longTest("take processes where all name the same GPU", async () => {
    expect(await launched(2, 2, "shared")).toEqual(onTcp(2));
  });

  longTest(
    "take processes where the GPUs of one host do not suffice, and rank 0 hosts the store",
    async () => {
      const port = await freePort();
      const outcomes = [2, 2, 0].map(async (devices, rank) => {
        const numbers = { RANK: rank, SIZE: 3, LOCAL_RANK: rank % 2, JOB_ID: "two-hosts" };
        const network = { ADDRESS: "127.0.0.1", PORT: port };
        const variables = Object.entries({ ...numbers, ...network });
        const named = variables.map(([name, value]) => [`TWINCCL_${name}`, String(value)]);
        const env = { ...process.env, ...machine(devices), ...Object.fromEntries(named) };
        const child = spawn(process.execPath, [path, "choice"], { env });
        let out = "";
        child.stdout.on("data", (chunk) => {
          out += chunk;
        });
        await once(child, "close");
        return JSON.parse(out.replace("result ", "")) as Outcome;
      });
      expect(await Promise.all(outcomes)).toEqual(onTcp(3));
    },
  );

  test("fail together where one lacks its GPU and NCCL is named alone", async () => {
    const outcomes = await launched(3, 2, "nccl");
    for (const outcome of outcomes) {
      expect(outcome).toMatchObject({ code: "ERR_COMM_BACKEND" });
      expect(outcome?.message).toContain("rank 2 is to use device 2, but 2 are visible");
      expect(outcome?.ms).toBeLessThan(10_000);
    }
    expect(outcomes[0]).toMatchObject({ ranks: [2] });
  });

  longTest(
    "are refused a simulation as the second choice, with the rank that lacks its GPU",
    async () => {
      for (const outcome of await launched(3, 2, "simulated")) {
        expect(outcome).toMatchObject({ code: "ERR_COMM_UNSUPPORTED" });
        expect(outcome?.message).toContain("rank 2 is to use device 2, but 2 are visible");
      }
    },
  );

  longTest("of which one compares calls are refused", async () => {
    for (const outcome of await launched(2, 2, "comparing", "nccl")) {
      expect(outcome).toMatchObject({ code: "ERR_COMM_ARG" });
      expect(outcome?.message).toMatch(/^ +rank 0 +once\n +rank 1 +off$/m);
    }
  });

  longTest("that name different backends are refused, each with the choices of all", async () => {
    for (const outcome of await launched(3, 3, "nccl", "tcp", "nccl")) {
      expect(outcome).toMatchObject({ code: "ERR_COMM_ARG" });
      expect(outcome?.message).toMatch(/ranks 0, 2 +nccl\n +rank 1 +tcp$/m);
      expect(outcome?.ms).toBeLessThan(10_000);
    }
  });
});

// With one sum of the same messages, or one that waits for a comparison.
test.each([
  [
    "algorithms",
    ["doubling", "linear"],
    /^ +rank 0 +\{"allReduce":"recursive-doubling"\}\n +rank 1 +\{"allReduce":"linear"\}$/m,
  ],
  ["compareCalls", ["always", "tcp"], /^ +rank 0 +always\n +rank 1 +once$/m],
])(
  "ranks that pass different %s to tcp() are refused, each with those of all",
  async (field, words, rows) => {
    const { results, text } = await runScript<Outcome>(2, joining(), words);
    for (const outcome of results) {
      expect(outcome, text).toMatchObject({ code: "ERR_COMM_ARG" });
      expect(outcome?.message).toContain(`connect: ${field}: `);
      expect(outcome?.message).toMatch(rows);
    }
  },
);

describe("the text of an option", () => {
  test("is the same for equal values, whatever the order of their fields", () => {
    const one = { like: "nccl-2.28", plan: { channels: 4, rings: [0, 1] }, topology: undefined };
    const same = { plan: { rings: [0, 1], channels: 4 }, like: "nccl-2.28" };
    expect(optionText(one)).toBe(optionText(same));
    expect(optionText(one)).not.toBe(optionText({ ...one, plan: { channels: 4, rings: [1, 0] } }));
    expect(optionText({})).toBe(undefined);
  });

  test("of a long value is short, and depends on its end", () => {
    const long = (end: string) => optionText({ xml: `${"<net/>".repeat(1000)}${end}` });
    expect(long("a")?.length).toBe(200);
    expect(long("a")).toBe(long("a"));
    expect(long("a")).not.toBe(long("b"));
  });
});

describe("the agreement", () => {
  /** A rank of a job, whose exchange has these results. */
  const rankOf = (rank: number, found: readonly object[]) => {
    const values = found.map((each) => new TextEncoder().encode(JSON.stringify(each)));
    return { ...{ jobId: "job", rank, size: found.length }, exchange: async () => values };
  };
  const bounds = { timeoutMs: 1000, signal: undefined };
  const has = { kind: "choice", backend: "nccl" };
  const lacks = { ...has, missing: "no driver" };
  const missing = new BackendUnavailableError({ headline: "no driver", hint: "install it" });

  test("is reached where all have what the backend needs", async () => {
    await agreeOnBackend(rankOf(1, [has, has]), "nccl", undefined, bounds);
  });

  test("fails by the reason of each rank that lacks it", async () => {
    const found = [has, lacks, { ...has, missing: "no GPU" }];
    const error = agreeOnBackend(rankOf(0, found), "nccl", undefined, bounds);
    await expect(error).rejects.toMatchObject({ code: "ERR_COMM_BACKEND", ranks: [1, 2] });
    const text = /on ranks 1, 2: no driver\n +rank 1 +no driver\n +rank 2 +no GPU$/m;
    await expect(error).rejects.toThrow(text);
    await expect(agreeOnBackend(rankOf(1, found), "nccl", missing, bounds)).rejects.toBe(missing);
  });

  test("fails by name where an option differs, once all have what the backend needs", async () => {
    const [once, off] = ["once", "off"].map((compareCalls) => ({ ...has, compareCalls }));
    const error = agreeOnBackend(rankOf(1, [once!, off!, has]), "nccl", undefined, bounds);
    await expect(error).rejects.toMatchObject({
      code: "ERR_COMM_ARG",
      field: "compareCalls",
      rank: 1,
    });
    await expect(error).rejects.toThrow(/^ +rank 0 +once\n +rank 1 +off\n +rank 2 +left out$/m);
    const lacking = agreeOnBackend(
      rankOf(0, [once!, { ...off!, missing: "no GPU" }]),
      "nccl",
      undefined,
      bounds,
    );
    await expect(lacking).rejects.toMatchObject({ code: "ERR_COMM_BACKEND", ranks: [1] });
  });

  test("fails where a rank gives something else", async () => {
    for (const other of [{ kind: "choice", backend: "tcp" }, { kind: "other" }, []]) {
      const error = agreeOnBackend(rankOf(0, [lacks, other]), "nccl", missing, bounds);
      await expect(error).rejects.toMatchObject({ code: "ERR_COMM_ARG", field: "backend" });
    }
  });
});
