/** Checkpoints: whole or refused by name, whatever moment a save was interrupted at. */
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CollectiveMismatchError, type Communicator, createWorld, WorldError } from "twinccl";
import {
  CheckpointError,
  type CheckpointFiles,
  type CheckpointParts,
  Checkpoints,
  decodeTensors,
  directoryFiles,
  memoryFiles,
  ParameterSet,
  Random,
  type Stateful,
  type StateTensor,
} from "twinccl/parallel";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { FailingFiles, type FailureKind } from "../../support/failing-files.ts";
import { partOf } from "../../support/seed.ts";

/** Shared state of every dtype and odd lengths, all of it made of one number. */
class Ballast implements Stateful {
  number: number;
  text = "é";

  constructor(number: number) {
    this.number = number;
  }

  state(): ReturnType<Stateful["state"]> {
    const { number, text } = this;
    const tensors: Record<string, StateTensor> = {
      a: { dtype: "float64", shape: [3], data: Float64Array.of(number, Number.NaN, -0) },
      b: { dtype: "bfloat16", shape: [5, 1], data: Uint16Array.of(1, 2, 3, 4, number) },
      c: { dtype: "int8", shape: [0], data: new Int8Array() },
      d: { dtype: "uint8", shape: [], data: Uint8Array.of(number) },
      e: { dtype: "int64", shape: [2, 2], data: BigInt64Array.of(1n, -2n, 3n, BigInt(number)) },
    };
    return { values: { number, text, list: [1, null, { x: true }] }, tensors };
  }

  restore(state: ReturnType<Stateful["state"]>): void {
    this.number = state.values["number"] as number;
    expect(state).toEqual(this.state());
  }
}

interface Everything extends CheckpointParts {
  readonly model: ParameterSet;
  readonly ballast: Ballast;
  readonly random: Random;
}

function everything(number: number, rank: number): Everything {
  const values = Array.from({ length: 35 }, (_, at) => number + at / 8);
  const model = new ParameterSet([
    { name: "w", shape: [5, 7], values },
    { name: "bias", shape: [3], dtype: "float64", values: [number, 1, 2] },
  ]);
  const ballast = new Ballast(number);
  const random = new Random(number, rank);
  return { shared: { model, ballast }, perRank: { random }, model, ballast, random };
}

async function run<T>(size: number, program: (comm: Communicator) => Promise<T>): Promise<T[]> {
  const world = await createWorld({ backend: sim(), size });
  try {
    return await world.run(program);
  } finally {
    await world.close();
  }
}

/** Saves two checkpoints: number 10 at step 1, number 20 at step 2. */
async function saveTwo(files: CheckpointFiles, size: number): Promise<void> {
  await run(size, async (comm) => {
    const checkpoints = new Checkpoints(comm, files);
    for (const step of [1, 2]) {
      expect(await checkpoints.save(step, everything(10 * step, comm.rank))).toEqual({
        save: step,
        step,
        size,
      });
    }
  });
}

/** Loads on some ranks; what each got. */
function load(
  files: CheckpointFiles,
  size: number,
  options: { readonly save?: number } = {},
): Promise<{ step: number | undefined; number: number; w: number[]; word: number }[]> {
  return run(size, async (comm) => {
    const parts = everything(0, comm.rank);
    const found = await new Checkpoints(comm, files).load(parts, options);
    const { model, ballast, random } = parts;
    const w = [...model.get("w").value];
    return { step: found?.step, number: ballast.number, w, word: random.word() };
  });
}

/** The error that loading or saving fails with on every rank: the same text but for the cause. */
async function failure(outcome: Promise<unknown>, size: number): Promise<CheckpointError> {
  const error = await outcome.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(WorldError);
  const { failures } = error as WorldError;
  expect(failures.map(({ rank }) => rank).sort((a, b) => a - b)).toEqual(
    Array.from({ length: size }, (_, rank) => rank),
  );
  const first = failures[0]!.error as CheckpointError;
  for (const each of failures) {
    expect(each.error).toBeInstanceOf(CheckpointError);
    expect(each.error).toMatchObject({
      message: first.message,
      file: first.file,
      ranks: first.ranks,
    });
  }
  return first;
}

const word = (number: number, rank: number): number => new Random(number, rank).word();

describe("a checkpoint", () => {
  test.each([1, 2, 3, 4, 7, 40])("of 4 ranks comes back on %i", async (size) => {
    const files = memoryFiles();
    await saveTwo(files, 4);
    for (const [rank, found] of (await load(files, size)).entries()) {
      expect(found).toMatchObject({ step: 2, number: 20 });
      expect(found.w).toEqual(Array.from({ length: 35 }, (_, at) => 20 + at / 8));
      // Ranks that were there go on with their own numbers; new ones have streams of their own.
      expect(found.word).toBe(rank < 4 ? word(20, rank) : word(0, rank));
    }
    expect((await load(files, size, { save: 1 }))[0]).toMatchObject({ step: 1, number: 10 });
  });

  test("of a missing save is undefined, and a number that was never saved is refused", async () => {
    expect((await load(memoryFiles(), 2)).map(({ step }) => step)).toEqual([undefined, undefined]);
    const error = await failure(load(memoryFiles(), 2, { save: 3 }), 2);
    expect(error.message).toMatch(/load: "save-00000003" is not there/);
  });

  test("is one file a rank, of equal shares and to the format's specification", async () => {
    const files = memoryFiles();
    await saveTwo(files, 3);
    const names = (await files.list("save-00000002")).sort();
    expect(names).toEqual([
      "manifest.json",
      ...[0, 1, 2].map((rank) => `rank-0000${rank}-of-00003.safetensors`),
    ]);
    const shares = await Promise.all(
      names.slice(1).map(async (name) => {
        const { tensors } = decodeTensors(await files.read(`save-00000002/${name}`));
        const shared = Object.entries(tensors).filter(([key]) => key.startsWith("shared/"));
        return shared.reduce((sum, [, { data }]) => sum + data.byteLength, 0);
      }),
    );
    // A unit of 8 bytes, and what is padded to one: 4 of w, 6 of b, 7 of d.
    expect(Math.max(...shares) - Math.min(...shares)).toBeLessThanOrEqual(25);
  });

  test("is kept as long as it is among the newest", async () => {
    const files = memoryFiles();
    const lists = await run(2, async (comm) => {
      const checkpoints = new Checkpoints(comm, files, { keep: 2 });
      for (let step = 1; step <= 4; step++)
        await checkpoints.save(step, everything(step, comm.rank));
      return checkpoints.list();
    });
    expect(lists[0]!.map(({ step }) => step)).toEqual([3, 4]);
    expect((await files.list("")).sort()).toEqual(["save-00000003", "save-00000004"]);
  });

  test("is stored in a directory of Node", async () => {
    const directory = mkdtempSync(join(tmpdir(), "twinccl-checkpoint-"));
    try {
      const files = directoryFiles(join(directory, "deep", "er"));
      expect((await load(files, 2))[0]!.step).toBeUndefined();
      await saveTwo(files, 2);
      expect((await load(files, 3))[2]).toMatchObject({ step: 2, number: 20 });
      await run(2, (comm) =>
        new Checkpoints(comm, files, { keep: 1 }).save(3, everything(30, comm.rank)),
      );
      expect(readdirSync(join(directory, "deep", "er"))).toEqual(["save-00000003"]);
      await expect(files.read("save-00000003/none")).rejects.toThrow(/ENOENT/);
    } finally {
      rmSync(directory, { recursive: true });
    }
  });
});

describe("a save that is interrupted", () => {
  /** The numbers of operations of rank 0 and the others; the last one is the first without a failure. */
  const kinds: FailureKind[] = ["before", "torn", "after"];

  test.each(partOf<FailureKind>(kinds, ["torn"]))(
    "at any operation (%s) leaves the earlier one, or is complete",
    async (kind) => {
      const size = 3;
      let struck = 0;
      for (const dead of [0, 1]) {
        for (let at = 0; ; at++) {
          const files = memoryFiles();
          await run(size, (comm) =>
            new Checkpoints(comm, files, { keep: 1 }).save(1, everything(10, comm.rank)),
          );
          const failing = new FailingFiles(files, at, kind);
          const saving = run(size, (comm) =>
            new Checkpoints(comm, comm.rank === dead ? failing : files, { keep: 1 }).save(
              2,
              everything(20, comm.rank),
            ),
          );
          const outcome = await saving.catch((error: unknown) => error);
          if (!failing.struck) {
            expect(outcome).toHaveLength(size);
            expect(at).toBeGreaterThan(dead === 0 ? 4 : 0);
            break;
          }
          struck++;
          const error = await failure(Promise.reject(outcome), size);
          expect(error.ranks).toEqual([dead]);
          expect(error.message).toMatch(/was killed/);
          // Whichever it is, it is whole: one number everywhere, on the same ranks and on others.
          const complete = /is complete/.test(error.message);
          for (const ranks of [size, 2]) {
            const found = await load(files, ranks);
            const step = found[0]!.step;
            expect([1, 2]).toContain(step);
            if (complete) expect(step).toBe(2);
            for (const each of found) expect(each).toMatchObject({ step, number: 10 * step! });
          }
          // The list of complete saves holds: also an older one with an interrupted removal.
          const [listed] = await run(1, (comm) => new Checkpoints(comm, files).list());
          for (const { save, step } of listed!) {
            expect((await load(files, 1, { save }))[0]).toMatchObject({ step, number: 10 * step });
          }
          const folders = (await files.list("")).sort();
          // And the next save succeeds, with a number of its own, and tidies up.
          const [next] = await run(size, (comm) =>
            new Checkpoints(comm, files, { keep: 1 }).save(3, everything(30, comm.rank)),
          );
          expect((await load(files, 1))[0]).toMatchObject({ step: 3, number: 30 });
          expect(folders).not.toContain(`save-${String(next!.save).padStart(8, "0")}`);
          expect(await files.list("")).toEqual([`save-${String(next!.save).padStart(8, "0")}`]);
        }
      }
      expect(struck).toBeGreaterThan(5);
    },
  );

  test("by a lack of room leaves what it took to the next one", async () => {
    const disk = memoryFiles();
    let room = Number.POSITIVE_INFINITY;
    const used = async (): Promise<number> => {
      let bytes = 0;
      for (const folder of await disk.list("")) {
        for (const name of await disk.list(folder)) {
          bytes += (await disk.read(`${folder}/${name}`)).length;
        }
      }
      return bytes;
    };
    const write = async (path: string, bytes: Uint8Array): Promise<void> => {
      const part = bytes.subarray(0, Math.max(0, room - (await used())));
      await disk.write(path, part);
      if (part.length < bytes.length) throw new Error("no space left");
    };
    await run(1, async (comm) => {
      const checkpoints = new Checkpoints(comm, { ...disk, write }, { keep: 1 });
      await checkpoints.save(1, everything(10, 0));
      const whole = await used();
      room = Math.round(1.5 * whole);
      await expect(checkpoints.save(2, everything(20, 0))).rejects.toThrow(/no space left/);
      room = Math.round(2.1 * whole);
      const third = checkpoints.save(3, everything(30, 0));
      await expect(third).resolves.toMatchObject({ save: 3, step: 3 });
    });
    expect(await disk.list("")).toEqual(["save-00000003"]);
  });

  test("is refused by name on request", async () => {
    const files = memoryFiles();
    await saveTwo(files, 2);
    await files.remove("save-00000002/manifest.json");
    expect((await load(files, 2))[0]).toMatchObject({ step: 1, number: 10 });
    const error = await failure(load(files, 2, { save: 2 }), 2);
    expect(error.message).toMatch(/"save-00000002" is torn: it has no manifest.json/);
    expect(error.file).toBe("save-00000002");
  });
});

describe("a damaged checkpoint is refused by name", () => {
  const second = (rank: number): string => `save-00000002/rank-0000${rank}-of-00003.safetensors`;
  const damages: [string, string, RegExp, (files: CheckpointFiles) => Promise<void>][] = [
    ["a missing file", second(1), /cannot be read/, (files) => files.remove(second(1))],
    [
      "a torn file",
      second(2),
      /is torn: \d+ bytes of/,
      async (files) => files.write(second(2), (await files.read(second(2))).slice(0, -5)),
    ],
    [
      "a flipped bit",
      second(0),
      /is torn: its checksum/,
      async (files) => {
        const bytes = await files.read(second(0));
        bytes[bytes.length - 1]! ^= 1;
        await files.write(second(0), bytes);
      },
    ],
    [
      "a file of another save",
      second(1),
      /is mixed in: it belongs to save 1, rank 1 of 3, needs save 2/,
      async (files) => files.write(second(1), await files.read(second(1).replace("2/", "1/"))),
    ],
    [
      "a file of another rank",
      second(1),
      /is mixed in: it belongs to save 2, rank 0 of 3/,
      async (files) => files.write(second(1), await files.read(second(0))),
    ],
    [
      "a changed manifest",
      "save-00000002/manifest.json",
      /is torn: its checksum does not fit/,
      async (files) => {
        const text = new TextDecoder().decode(await files.read("save-00000002/manifest.json"));
        const changed = text.replace('"step":2', '"step":3');
        await files.write("save-00000002/manifest.json", new TextEncoder().encode(changed));
      },
    ],
    [
      "the manifest of another save",
      "save-00000002/manifest.json",
      /belongs to save 1/,
      async (files) =>
        files.write("save-00000002/manifest.json", await files.read("save-00000001/manifest.json")),
    ],
  ];
  test.each(damages)("%s", async (_, file, message, damage) => {
    const files = memoryFiles();
    await saveTwo(files, 3);
    await damage(files);
    for (const size of [3, 2]) {
      const error = await failure(load(files, size), size);
      expect(error.message).toMatch(message);
      expect(error.message).toContain(file);
      expect(error.file).toBe(file);
      expect(error.hint).toMatch(/earlier save/);
    }
    expect((await load(files, 3, { save: 1 }))[0]).toMatchObject({ step: 1 });
  });
});

describe("differences between ranks", () => {
  test.each<[string, RegExp, (parts: Everything) => void]>([
    [
      "a value of a parameter",
      /"model\/w": rank 2 differs/,
      ({ model }) => model.get("w").value.set([1], 9),
    ],
    [
      "a plain value",
      /"ballast: values": rank 2 differs/,
      ({ ballast }) => {
        ballast.text = "other";
      },
    ],
  ])("%s is not saved, on any rank", async (_, message, change) => {
    const files = memoryFiles();
    const world = await createWorld({ backend: sim(), size: 4 });
    const error = await world
      .run(async (comm) => {
        const parts = everything(20, comm.rank);
        if (comm.rank === 2) change(parts);
        await new Checkpoints(comm, files).save(1, parts);
      })
      .catch((thrown: unknown) => thrown as WorldError);
    await world.close();
    const { failures } = error as WorldError;
    expect(failures).toHaveLength(4);
    for (const each of failures) {
      expect(each.error).toBeInstanceOf(CollectiveMismatchError);
      expect((each.error as Error).message).toMatch(message);
      expect((each.error as CollectiveMismatchError).ranks).toEqual([2]);
    }
    expect(await files.list("")).toEqual([]);
  });

  test("parts of other names are refused with the missing names", async () => {
    const files = memoryFiles();
    await saveTwo(files, 2);
    const loading = run(2, async (comm) => {
      const { model, random } = everything(0, comm.rank);
      await new Checkpoints(comm, files).load({
        shared: { model, other: model },
        perRank: { random },
      });
    });
    const { message } = await failure(loading, 2);
    expect(message).toMatch(
      /has "ballast", lacks "other" among its shared parts \(ballast, model\)/,
    );
  });
});

test("a value that JSON would change is refused before anything is written", async () => {
  const refused = async (value: number, name = "p"): Promise<string> => {
    const part: Stateful = {
      state: () => ({ values: { deep: [{ value }] }, tensors: {} }),
      restore: () => {},
    };
    const saving = run(1, (comm) =>
      new Checkpoints(comm, memoryFiles()).save(1, { shared: { [name]: part } }),
    );
    const error = await saving.catch((thrown: unknown) => thrown as WorldError);
    return String(((error as WorldError).failures[0]!.error as Error).message);
  };
  expect(await refused(Number.NaN)).toMatch(/p: found NaN as deep.0.value/);
  expect(await refused(-0)).toMatch(/found -0 as deep.0.value/);
  expect(await refused(1, "a/b")).toMatch(/a\/b: found the name/);
});
