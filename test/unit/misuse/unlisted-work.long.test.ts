/** Ranks that all wait, one of them for work that no runtime lists among live resources: no deadlock is reported. */
import { spawn } from "node:child_process";
import { pbkdf2, randomBytes } from "node:crypto";
import { availableParallelism } from "node:os";
import { promisify } from "node:util";
import { brotliCompress, deflate } from "node:zlib";
import { type Communicator, createWorld, type StallReport, type World } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, onTestFinished, test } from "vitest";
import { isAll } from "../../support/seed.ts";
import { linuxReason } from "../../support/skipped.ts";

/** Long enough that a proof which overlooks it is there first. */
const works: readonly (readonly [string, () => Promise<unknown>])[] = [
  ["compression", () => promisify(deflate)(randomBytes(4_000_000))],
  ["slower compression", () => promisify(brotliCompress)(randomBytes(300_000))],
  ["cryptography", () => promisify(pbkdf2)("word", "salt", 300_000, 32, "sha256")],
  ["the compiling of WebAssembly", () => webAssembly.compile(manyFunctions(5_000))],
];

const { WebAssembly: webAssembly } = globalThis as unknown as {
  WebAssembly: { compile(bytes: Uint8Array): Promise<unknown> };
};

/** A module of functions that add to their argument many times. */
function manyFunctions(count: number): Uint8Array {
  const step = [0x41, 1, 0x6a];
  const code = [0, 0x20, 0, ...Array.from({ length: 100 }, () => step).flat(), 0x0b];
  const body = [...leb(code.length), ...code];
  const bodies = Array.from({ length: count }, () => body).flat();
  const section = (id: number, content: readonly number[]) => [
    id,
    ...leb(content.length),
    ...content,
  ];
  return Uint8Array.from([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, [1, 0x60, 1, 0x7f, 1, 0x7f]),
    ...section(3, [...leb(count), ...new Array<number>(count).fill(0)]),
    ...section(10, [...leb(count), ...bodies]),
  ]);
}

function leb(value: number): number[] {
  return value < 128 ? [value] : [(value & 127) | 128, ...leb(value >>> 7)];
}

async function worldOfTwo(onStall: (report: StallReport) => void): Promise<World> {
  const world = await createWorld({ backend: sim(), size: 2, stallMs: 20, onStall });
  onTestFinished(() => world.close());
  return world;
}

/** Rank 0 waits on one communicator while it works for the other one, which rank 1 waits on. */
async function crossed(comm: Communicator, work: () => Promise<unknown>): Promise<string> {
  const other = await comm.split({ color: 0, stream: "own" });
  const late = { timeoutMs: 5 };
  if (comm.rank === 0) {
    await Promise.all([other.barrier(late), work().then(() => comm.barrier(late))]);
  } else {
    await comm.barrier(late);
    await other.barrier(late);
  }
  return "done";
}

// Elsewhere the system does not tell which threads work.
describe.skipIf(linuxReason !== "")(`work that no list shows${linuxReason}`, () => {
  test.each(works)("%s prevents a deadlock, and lets no virtual deadline pass", async (_, work) => {
    const world = await worldOfTwo(() => undefined);
    expect(await world.run((comm) => crossed(comm, work))).toEqual(["done", "done"]);
  });

  test("prevents one also where threads wait for processors", async () => {
    const busy = Array.from({ length: 2 * availableParallelism() }, () =>
      spawn(process.execPath, ["--eval", "for (;;);"], { stdio: "ignore" }),
    );
    try {
      for (let round = 0; round < (isAll ? 3 : 1); round++) {
        const world = await worldOfTwo(() => undefined);
        const work = () => promisify(pbkdf2)("word", "salt", 50_000, 32, "sha256");
        expect(await world.run((comm) => crossed(comm, work))).toEqual(["done", "done"]);
      }
    } finally {
      for (const each of busy) each.kill("SIGKILL");
    }
  });

  test("is reported as a stall when it takes long; an endless wait is a deadlock after it", async () => {
    const stalls: string[] = [];
    const world = await worldOfTwo(({ text }) => void stalls.push(text));
    const run = world.run(async (comm) => {
      if (comm.rank === 1) return;
      const long = promisify(pbkdf2)("word", "salt", 1_000_000, 32, "sha256");
      await Promise.all([comm.barrier(), long]);
    });
    await expect(run).rejects.toMatchObject({
      failures: [{ error: { code: "ERR_COMM_DEADLOCK" } }],
    });
    expect(stalls).toEqual([expect.stringMatching(/^stalled: rank 0 waits/)]);
  });
});

describe("worlds that are deadlocked", () => {
  const alone = (comm: Communicator) => (comm.rank === 0 ? comm.barrier() : undefined);
  const deadlock = { failures: [{ error: { code: "ERR_COMM_DEADLOCK" } }] };

  test("at the same time are all reported, none as a stall before", async () => {
    const stalls: string[] = [];
    const worlds = await Promise.all(
      // One after another, at 50 ms each, they would be stalls first; a busy machine must not make them so.
      Array.from({ length: 200 }, () =>
        createWorld({
          ...{ backend: sim(), size: 2, stallMs: 10_000 },
          onStall: ({ text }) => void stalls.push(text),
        }),
      ),
    );
    await Promise.all(
      worlds.map((world) => expect(world.run(alone)).rejects.toMatchObject(deadlock)),
    );
    expect(stalls).toEqual([]);
    await Promise.all(worlds.map((world) => world.close()));
  });

  test("are not reported as stalls in every run, with a stallMs of 1", async () => {
    const stalls: string[] = [];
    const world = await createWorld({
      ...{ backend: sim(), size: 2, stallMs: 1 },
      onStall: ({ text }) => void stalls.push(text),
    });
    const runs = 30;
    for (let run = 0; run < runs; run++) {
      await expect(world.run(alone)).rejects.toMatchObject(deadlock);
    }
    expect(stalls.length).toBeLessThan(runs);
    await world.close();
  });
});
