/** Checkpoints with right checksums and wrong content: loaded as they were saved, or refused by name. */
import { execFileSync } from "node:child_process";
import fs from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createWorld, InvalidArgumentError, WorldError } from "twinccl";
import {
  CheckpointError,
  type CheckpointFiles,
  Checkpoints,
  decodeTensors,
  directoryFiles,
  encodeTensors,
  memoryFiles,
  type RankStateful,
  type State,
  type StateTensor,
  type TensorFile,
} from "twinccl/parallel";
import { sim } from "twinccl/sim";
import { afterEach, describe, expect, test } from "vitest";
import { isAll, someOf } from "../support/seed.ts";
import { randomWords } from "../unit/algorithms/arithmetic/lane-bits.ts";

/** Takes any state: so that what is wrong with one is found by the checkpoint, or not at all. */
class Anything implements RankStateful {
  kept: State;

  constructor(kept: State) {
    this.kept = kept;
  }

  state(): State {
    return this.kept;
  }

  restore(state: State): void {
    this.kept = state;
  }

  reshard(states: readonly State[], rank: number): void {
    this.kept = states[rank % states.length] as State;
  }
}

const float32 = (length: number, first: number): StateTensor => ({
  dtype: "float32",
  shape: [length],
  data: Float32Array.from({ length }, (_, at) => first + at),
});

/** As many bytes in each of `a` and `b`; one dtype of equal width, one tensor without elements, one that is cut. */
function partsOf(rank: number): { shared: Record<string, Anything>; perRank: { own: Anything } } {
  const model: State = {
    values: { kind: "model" },
    tensors: {
      a: float32(4, 1),
      b: float32(4, 100),
      bits: { dtype: "int32", shape: [2, 1], data: Int32Array.of(7, -7) },
      none: { dtype: "int8", shape: [0], data: new Int8Array() },
      w: { ...float32(37, 1000), shape: [37] },
    },
  };
  const rate: State = { values: { steps: 3, list: [1, { x: true }] }, tensors: {} };
  const own: State = { values: { rank }, tensors: { owed: float32(3, rank) } };
  const shared = { model: new Anything(model), rate: new Anything(rate) };
  return { shared, perRank: { own: new Anything(own) } };
}

const SIZE = 3;
const MANIFEST = "save-00000001/manifest.json";
const rankFile = (rank: number): string => `save-00000001/rank-0000${rank}-of-00003.safetensors`;

interface Json {
  [name: string]: unknown;
}

async function sha256(bytes: Uint8Array): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", bytes.slice());
  return Buffer.from(digest).toString("hex");
}

/** The manifest as JSON has it, changed, with the checksum of what it is then. */
async function craft(files: CheckpointFiles, change: (manifest: Json) => unknown): Promise<Json> {
  const text = new TextDecoder().decode(await files.read(MANIFEST));
  const { manifest } = JSON.parse(text) as { manifest: Json };
  const made = change(manifest) ?? manifest;
  const body = typeof made === "string" ? made : JSON.stringify(made);
  const sum = await sha256(new TextEncoder().encode(body));
  const whole = `{"sha256":"${sum}","manifest":${body}}\n`;
  await files.write(MANIFEST, new TextEncoder().encode(whole));
  return made as Json;
}

/** A rank's file, changed, with its checksum and length in the manifest. */
async function craftFile(
  files: CheckpointFiles,
  rank: number,
  change: (file: {
    tensors: Record<string, StateTensor>;
    metadata: Record<string, string>;
  }) => void,
): Promise<void> {
  const { tensors, metadata }: TensorFile = decodeTensors(await files.read(rankFile(rank)));
  const changed = { tensors: { ...tensors }, metadata: { ...metadata } };
  change(changed);
  const bytes = encodeTensors(changed);
  await files.write(rankFile(rank), bytes);
  const sum = await sha256(bytes);
  await craft(files, (manifest) => {
    Object.assign((manifest["files"] as Json[])[rank]!, { bytes: bytes.length, sha256: sum });
  });
}

async function saved(files: CheckpointFiles): Promise<CheckpointFiles> {
  const world = await createWorld({ backend: sim(), size: SIZE });
  await world.run((comm) => new Checkpoints(comm, files).save(1, partsOf(comm.rank)));
  await world.close();
  return files;
}

/** The same files, with the paths that are read. */
function watched(files: CheckpointFiles, paths: Set<string>): CheckpointFiles {
  return {
    ...files,
    read: (path) => {
      paths.add(path);
      return files.read(path);
    },
  };
}

/** The state of every rank after loading, or the error of all. Only the save's own files are read. */
async function outcome(files: CheckpointFiles, size: number): Promise<State[][] | CheckpointError> {
  const paths = new Set<string>();
  const world = await createWorld({ backend: sim(), size });
  try {
    return await world.run(async (comm) => {
      const { shared, perRank } = partsOf(0);
      const blank: State = { values: {}, tensors: {} };
      const parts = [...Object.values(shared), perRank.own];
      for (const each of parts) each.kept = blank;
      await new Checkpoints(comm, watched(files, paths)).load({ shared, perRank });
      return parts.map(({ kept }) => kept);
    });
  } catch (error) {
    expect(error).toBeInstanceOf(WorldError);
    const { failures } = error as WorldError;
    expect(failures).toHaveLength(size);
    for (const each of failures) expect(each.error).toBeInstanceOf(CheckpointError);
    return failures[0]!.error as CheckpointError;
  } finally {
    await world.close();
    const own = [MANIFEST, ...Array.from({ length: SIZE }, (_, rank) => rankFile(rank))];
    expect(own).toEqual(expect.arrayContaining([...paths]));
  }
}

const bytesOf = ({ data }: StateTensor): number[] => [
  ...new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
];

/** Tensors bit by bit, without their shapes, which stand in the manifest alone for divided tensors. */
const bits = (states: readonly State[]): unknown =>
  states.map(({ tensors }) =>
    Object.entries(tensors)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, tensor]) => [name, tensor.dtype, bytesOf(tensor)]),
  );

type Line = [string, { dtype: string; shape: unknown[] }];
const tensorsOf = (manifest: Json): Line[] =>
  (manifest["shared"] as [string, { tensors: Line[] }][])[0]![1].tensors;
const filesOf = (manifest: Json): Json[] => manifest["files"] as Json[];

describe("a manifest with a right checksum once loaded wrong values in silence", () => {
  test.each<[string, RegExp, (manifest: Json) => unknown]>([
    ["a missing line of files", /files: found 2, needs 3/, (m) => void filesOf(m).pop()],
    [
      "a dtype of equal width",
      /"shared\/model\/a": found float32 \[4\], needs int32 \[4\]/,
      (m) => void Object.assign(tensorsOf(m)[0]![1], { dtype: "int32" }),
    ],
    [
      "a tensor twice",
      /tensors of "model": found "a", needs each name once/,
      (m) => void tensorsOf(m)[1]!.splice(0, 1, "a"),
    ],
    [
      "a part twice",
      /shared: found "model", needs each name once/,
      (m) => (m["shared"] as unknown[]).push((m["shared"] as unknown[])[0]) && m,
    ],
  ])("%s", async (_, message, change) => {
    const files = await saved(memoryFiles());
    await craft(files, change);
    for (const size of [3, 2]) {
      const error = await outcome(files, size);
      expect(error).toBeInstanceOf(CheckpointError);
      expect((error as CheckpointError).message).toMatch(message);
      expect((error as CheckpointError).file).toMatch(/^save-00000001\//);
      expect((error as CheckpointError).hint).toMatch(/earlier save/);
    }
  });
});

describe("a manifest with a right checksum that describes no save is refused by name", () => {
  const shapes: readonly unknown[][] = [[2 ** 50], [-1], [0.5], [36], [2 ** 50, 2 ** 50, 0], ["3"]];
  test.each(shapes)("a shape of %j", async (...shape) => {
    const files = await saved(memoryFiles());
    await craft(files, (m) => void Object.assign(tensorsOf(m)[4]![1], { shape: shape }));
    for (const size of [3, 1]) {
      const error = (await outcome(files, size)) as CheckpointError;
      expect(error).toBeInstanceOf(CheckpointError);
      expect(error.file).toMatch(/^save-00000001\//);
    }
  });

  test.each<[string, unknown]>([
    ["a renamed tensor", (m: Json) => void tensorsOf(m)[0]!.splice(0, 1, "z")],
    ["no JSON", () => "{,}"],
    ["null", () => "null"],
    ["no parts", (m: Json) => void delete m["shared"]],
    [
      "a part without tensors",
      (m: Json) => void delete (m["shared"] as [0, Json][])[0]![1]["tensors"],
    ],
  ])("%s", async (_, change) => {
    const files = await saved(memoryFiles());
    await craft(files, change as (manifest: Json) => unknown);
    for (const size of [3, 1]) {
      const error = (await outcome(files, size)) as CheckpointError;
      expect(error).toBeInstanceOf(CheckpointError);
      expect(error.file).toMatch(/^save-00000001\//);
    }
  });
});

describe("a rank's file with a right checksum", () => {
  const cuts: [string, RegExp, Parameters<typeof craftFile>[2]][] = [
    ["lacks a tensor", /lacks/, ({ tensors }) => void delete tensors["shared/model/a"]],
    [
      "has one more",
      /"shared\/model\/more": found float32 \[1\], needs none/,
      ({ tensors }) => void Object.assign(tensors, { "shared/model/more": float32(1, 0) }),
    ],
    [
      "has a tensor of a part that is not there",
      /"rank\/other\/x": found float32 \[1\], needs none/,
      ({ tensors }) => void Object.assign(tensors, { "rank/other/x": float32(1, 0) }),
    ],
    ["has no values", /values/, ({ metadata }) => void delete metadata["values"]],
    [
      "has values that are no JSON",
      /values/,
      ({ metadata }) => void Object.assign(metadata, { values: "{" }),
    ],
    [
      "has values of no part",
      /values/,
      ({ metadata }) => void Object.assign(metadata, { values: "{}" }),
    ],
    [
      "has values that are none",
      /values/,
      ({ metadata }) => void Object.assign(metadata, { values: '{"own":3}' }),
    ],
  ];
  test.each(cuts)("that %s is refused", async (_, message, change) => {
    const files = await saved(memoryFiles());
    await craftFile(files, 0, change);
    const error = (await outcome(files, 3)) as CheckpointError;
    expect(error.message).toMatch(message);
    expect(error.file).toBe(rankFile(0));
  });

  test("that is not in the safetensors format is refused", async () => {
    const files = await saved(memoryFiles());
    const bytes = new Uint8Array(64).fill(255);
    await files.write(rankFile(0), bytes);
    const sum = await sha256(bytes);
    await craft(files, (m) => void Object.assign(filesOf(m)[0]!, { bytes: 64, sha256: sum }));
    const error = (await outcome(files, 3)) as CheckpointError;
    expect(error.message).toMatch(/is no safetensors file/);
  });
});

/** All places of a JSON value that something may be put into. */
function placesOf(value: unknown, holders: [Json, string][] = []): [Json, string][] {
  if (typeof value !== "object" || value === null) return holders;
  for (const [name, each] of Object.entries(value)) {
    holders.push([value as Json, name]);
    placesOf(each, holders);
  }
  return holders;
}

const wild: readonly unknown[] = [
  ...[0, 1, 2, 3, 4, 36, 37, -1, 0.5, 2 ** 31, 2 ** 50, 1e300, null, true, "", "a", "b", "model"],
  ...["own", "none", "float32", "int32", "uint8", "toString", "__proto__", "../../etc/passwd"],
  ...[[], {}, [4], [37], ["a", { dtype: "float32", shape: [4] }], rankFile(0), rankFile(2)],
];

/** Changes one place: another value, none, the one of another place, or a copy beside it. */
function mutate(manifest: Json, next: () => number): void {
  const places = placesOf(manifest);
  const [holder, name] = places[next() % places.length]!;
  const [other, otherName] = places[next() % places.length]!;
  const kind = next() % 5;
  if (kind === 0) holder[name] = structuredClone(wild[next() % wild.length]);
  else if (kind === 1) Array.isArray(holder) ? holder.splice(Number(name), 1) : delete holder[name];
  else if (kind === 2) holder[name] = structuredClone(other[otherName]);
  else if (kind === 3 && Array.isArray(holder))
    holder.splice(next() % (holder.length + 1), 0, structuredClone(holder[Number(name)]));
  else if (Array.isArray(holder)) holder.push(...holder.splice(next() % holder.length, 1));
  else holder[`${name}x`] = holder[name];
}

test.each(someOf([1, 2, 3, 4]))(
  "manifests changed at random load the saved bits or are refused, seed %i",
  async (seed) => {
    const next = randomWords(seed);
    const files = await saved(memoryFiles());
    const original = await files.read(MANIFEST);
    const expected = partsOf(0);
    const shared = bits(Object.values(expected.shared).map(({ kept }) => kept));
    let [loaded, refused] = [0, 0];
    const rounds = isAll ? 100 : 40;
    for (let round = 0; round < rounds; round++) {
      await files.write(MANIFEST, original);
      const made = await craft(files, (manifest) => {
        for (let times = 0; times <= next() % 2; times++) mutate(manifest, next);
      });
      const found = await outcome(files, 1 + (next() % 4));
      if (found instanceof CheckpointError) {
        refused++;
        continue;
      }
      loaded++;
      const text = JSON.stringify(made);
      for (const [rank, states] of found.entries()) {
        expect(bits(states.slice(0, 2)), text).toEqual(shared);
        expect(bits(states.slice(2)), text).toEqual(bits([partsOf(rank % SIZE).perRank.own.kept]));
      }
    }
    // Some change values, which are theirs alone to tell, or the order of parts.
    expect(loaded).toBeGreaterThan(rounds / 30);
    expect(refused).toBeGreaterThan(rounds / 2);
  },
);

describe("a directory once opened files that its names and links led to", () => {
  const directories: string[] = [];
  async function directory(): Promise<string> {
    const made = await fs.realpath(await fs.mkdtemp(join(tmpdir(), "twinccl-crafted-")));
    directories.push(made);
    return made;
  }
  afterEach(async () => {
    for (const each of directories.splice(0)) await fs.rm(each, { recursive: true });
  });

  const readsNothing = async (files: CheckpointFiles, path: string): Promise<void> => {
    const reading = files.read(path).catch((error: unknown) => error);
    const error = (await reading) as InvalidArgumentError;
    expect(error).toBeInstanceOf(InvalidArgumentError);
    expect(error.field).toBe("path");
    expect(error.message).toContain(JSON.stringify(path));
  };

  test("a FIFO, a device, a folder and a path that leaves it", async () => {
    const inside = await directory();
    const files = directoryFiles(inside);
    await files.write("save/file", Uint8Array.of(1));
    execFileSync("mkfifo", [join(inside, "fifo")]);
    await fs.symlink("/dev/zero", join(inside, "zero"));
    const outside = await directory();
    await fs.writeFile(join(outside, "file"), "secret");
    const up = `../${outside.split("/").at(-1)}/file`;
    for (const path of ["fifo", "zero", "save", up, `save/../${up}`])
      await readsNothing(files, path);
    expect(await files.read("save/file")).toEqual(Buffer.of(1));
  });

  test("a link to a file, and to a folder of saves, outside of it", async () => {
    const elsewhere = await directory();
    await saved(directoryFiles(elsewhere));
    const inside = await directory();
    await fs.symlink(join(elsewhere, "save-00000001"), join(inside, "save-00000001"));
    await readsNothing(directoryFiles(inside), MANIFEST);
    const error = (await outcome(directoryFiles(inside), 2)) as CheckpointError;
    expect(error).toBeInstanceOf(CheckpointError);
    expect(error.file).toBe(MANIFEST);
    // The directory itself may be a link: it is the one that was given.
    const link = join(inside, "link");
    await fs.symlink(elsewhere, link);
    expect(await outcome(directoryFiles(link), 3)).toHaveLength(3);
  });

  test("a rank's file that is a FIFO is refused by name on all ranks", async () => {
    const inside = await directory();
    await saved(directoryFiles(inside));
    await fs.rm(join(inside, rankFile(1)));
    execFileSync("mkfifo", [join(inside, rankFile(1))]);
    const error = (await outcome(directoryFiles(inside), 3)) as CheckpointError;
    expect(error.file).toBe(rankFile(1));
  });

  test("a path in the manifest", async () => {
    const inside = await directory();
    const files = await saved(directoryFiles(inside));
    for (const path of ["../../../../etc/passwd", "/dev/zero", rankFile(1), 7]) {
      await craft(files, (m) => void Object.assign(filesOf(m)[0]!, { path }));
      const error = (await outcome(files, 3)) as CheckpointError;
      expect(error.message).toMatch(
        /files\.0\.path: found .*, needs "save-00000001\/rank-00000-of-00003/,
      );
      expect(error.file).toBe(MANIFEST);
    }
  });

  test("folders with names that no save has are ignored", async () => {
    const files = await saved(memoryFiles());
    for (const name of ["save-000000002", "save-99999999999999999999", "save-00000000"]) {
      await files.write(`${name}/manifest.json`, new Uint8Array());
    }
    expect(await outcome(files, 3)).toHaveLength(3);
    const world = await createWorld({ backend: sim(), size: 1 });
    const [found] = await world.run((comm) => new Checkpoints(comm, files).save(2, partsOf(0)));
    await world.close();
    expect(found!.save).toBe(2);
  });
});
