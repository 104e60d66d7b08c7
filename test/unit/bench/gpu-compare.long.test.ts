/** The comparison on GPUs, its peers being small scripts: interleaving, checks, and peers that fail. */
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";

interface PeerLike {
  readonly name: string;
  readonly failure?: string;
  readonly hello?: object;
  open(): Promise<PeerLike>;
  ask(line: string): Promise<{ answers?: object[]; error?: string }>;
  quit(): Promise<void>;
}
interface Row {
  readonly mode: string;
  readonly command: (check: number) => string;
}
interface Cell {
  readonly median_us?: number;
  readonly samples?: number;
  readonly right?: boolean;
  readonly not_run?: string;
}
interface Outcome {
  readonly rounds: number;
  readonly results: { readonly peers: Record<string, Cell> }[];
}

const load = (name: string) =>
  import(/* @vite-ignore */ fileURLToPath(new URL(`../../../bench/gpu/${name}`, import.meta.url)));
const { Peer } = (await load("peer.mjs")) as {
  Peer: new (name: string, processes: object[]) => PeerLike;
};
const { compare } = (await load("compare.mjs")) as {
  compare(rows: Row[], peers: PeerLike[], options: object): Promise<Outcome>;
};
const { rowsOf } = (await load("plan.mjs")) as {
  rowsOf(ranks: number, options: { quick: boolean }): (Row & Record<string, unknown>)[];
};

const open: PeerLike[] = [];
afterEach(() => Promise.all(open.splice(0).map((peer) => peer.quit())));

/** A peer of so many processes; `answer` is the body of a function of the line and the rank that returns a reply. */
async function peerOf(name: string, processes: number, answer: string): Promise<PeerLike> {
  const program = `
    const rank = Number(process.argv[1]);
    let lineCount = 0;
    const require = (await import("node:module")).createRequire("/");
    const answer = (line) => { lineCount++; ${answer} };
    console.log("noise of a library");
    console.log(JSON.stringify({ hello: rank }));
    for await (const line of (await import("node:readline")).createInterface({ input: process.stdin })) {
      if (line === "quit") break;
      console.log(JSON.stringify(answer(line)));
    }
  `;
  const many = Array.from({ length: processes }, (_, rank) => {
    const args = ["--input-type=module", "-e", program, "--", `${rank}`];
    return { file: process.execPath, args, env: {} };
  });
  const peer = await new Peer(name, many).open();
  open.push(peer);
  return peer;
}

const row = (mode: string): Row => ({ mode, command: (check) => `${mode} ${check}` });
const always = { rounds: 3, deadline: Number.POSITIVE_INFINITY };

describe("compare", () => {
  test("takes the slowest process of each round, and the median of the rounds", async () => {
    const walls = "return { wall_us: [10, 30, 20][lineCount - 1] + 100 * rank, right: null };";
    const peer = await peerOf("ours", 2, walls);
    const { rounds, results } = await compare([row("eager")], [peer], always);
    expect(rounds).toBe(3);
    expect(results[0]?.peers["ours"]).toMatchObject({ median_us: 120, samples: 3, right: true });
  });
  test("runs one peer at a time, each before the other as often as after it", async () => {
    const log: string[] = [];
    const noting = (name: string): PeerLike => ({
      name,
      open: async () => noting(name),
      quit: async () => undefined,
      ask: async (line) => {
        log.push(`${name}:${line}`);
        return { answers: [{ wall_us: 1, right: null }] };
      },
    });
    const rows = [{ ...row("a"), turns: 3 }, row("b")];
    await compare(rows, [noting("x"), noting("y")], { ...always, rounds: 2 });
    const pairs = Array.from({ length: log.length / 2 }, (_, at) => log.slice(2 * at, 2 * at + 2));
    const expectedLines = ["a 1", "a 0", "a 0", "b 1", "a 0", "a 0", "a 0", "b 0"];
    expect(pairs.map((pair) => pair.map((each) => each.slice(2)))).toEqual(
      expectedLines.map((line) => [line, line]),
    );
    expect(pairs.map((pair) => pair.map(([name]) => name).join(""))).toEqual([
      ...["xy", "yx", "yx", "xy"],
      ...["xy", "yx", "yx", "xy"],
    ]);
  });
  test("measures pairs in every turn, and spends the remaining time on the least certain ratios", async () => {
    let [calls, nowMs] = [0, 0];
    const clock = vi.spyOn(performance, "now").mockImplementation(() => nowMs);
    onTestFinished(() => clock.mockRestore());
    const steady = (name: string, us: (mode: string) => number): PeerLike => ({
      name,
      open: async () => steady(name, us),
      quit: async () => undefined,
      ask: async (line) => {
        calls += 1;
        nowMs += 2;
        return { answers: [{ wall_us: us(line.split(" ")[0] as string), right: null }] };
      },
    });
    let turn = 0;
    const ours = steady("ours", (mode) => (mode === "wild" ? 10 + (turn++ % 5) : 10));
    const [theirs, slow] = [steady("theirs", () => 8), steady("slow", () => 80)];
    const rows = [
      { ...row("calm"), turns: 2, finest: 0.1 },
      { ...row("wild"), turns: 2, finest: 0.1 },
    ];
    const pairs = [
      ["ours", "theirs"],
      ["absent", "theirs"],
    ];
    const deadline = nowMs + 400;
    const given = { rounds: 3, deadline, pairs };
    const { rounds, results } = await compare(rows, [ours, slow, theirs], given);
    const samples = results.map(({ peers }) =>
      ["ours", "theirs", "slow"].map((name) => peers[name]?.samples ?? 0),
    );
    expect(rounds).toBe(3);
    expect(samples[0]).toEqual([6, 6, 3]);
    expect(samples[1]?.[2]).toBe(3);
    expect(samples[1]?.[0]).toBe(samples[1]?.[1]);
    expect(samples[1]?.[0]).toBeGreaterThan(20);
    expect(calls).toBe(samples.flat().reduce((sum, each) => sum + each, 0));
  });
  test("continues without a peer that refuses a row, and without one that dies", async () => {
    const fine = await peerOf("fine", 1, "return { wall_us: 5, right: true };");
    const picky = await peerOf(
      "picky",
      2,
      'return line.startsWith("graph") ? { error: "no graphs" } : { wall_us: 7, right: true };',
    );
    const dying = await peerOf(
      "dying",
      2,
      'if (lineCount === 2 && rank === 1) { console.error("NcclError: lost"); process.exit(3); } return { wall_us: 9, right: true };',
    );
    const rows = [row("eager"), row("graph")];
    const { results } = await compare(rows, [fine, picky, dying], always);
    const [eager, graph] = results.map(({ peers }) => peers);
    expect(graph?.["fine"]).toMatchObject({ median_us: 5, samples: 3 });
    expect(eager?.["picky"]).toMatchObject({ median_us: 7, samples: 3 });
    expect(graph?.["picky"]).toEqual({ not_run: "no graphs" });
    expect(eager?.["dying"]).toMatchObject({ median_us: 9, samples: 1 });
    expect(graph?.["dying"]).toEqual({ not_run: "exit status 3: NcclError: lost" });
  });
  test("a wrong result of any process makes the cell wrong", async () => {
    const peer = await peerOf("ours", 2, "return { wall_us: 1, right: rank === 0 };");
    const { results } = await compare([row("eager")], [peer], { ...always, rounds: 1 });
    expect(results[0]?.peers["ours"]?.right).toBe(false);
  });
  test("stops at its time limit", async () => {
    const peer = await peerOf("ours", 1, "return { wall_us: 1, right: null };");
    const { rounds, results } = await compare([row("eager")], [peer], { ...always, deadline: 0 });
    expect({ rounds, cell: results[0]?.peers["ours"] }).toEqual({
      ...{ rounds: 0, cell: { not_run: "out of time" } },
    });
  });
});

test("main threads of the same rank share a processor, far from the others", async () => {
  const { allowed, pinnedText, pinPeers, processorsFor } = (await load("pin.mjs")) as {
    allowed(list: string): number[];
    processorsFor(ranks: number, processors: readonly number[]): number[];
    pinPeers(
      peers: readonly PeerLike[],
      ranks: number,
    ): { processors?: number[]; not_pinned?: string };
    pinnedText(found: object): string;
  };
  expect(allowed("0-3,8,10-11")).toEqual([0, 1, 2, 3, 8, 10, 11]);
  expect(processorsFor(2, allowed("0-31"))).toEqual([8, 24]);
  expect(processorsFor(8, allowed("0-127")).slice(0, 3)).toEqual([8, 24, 40]);
  const peer = await peerOf(
    "ours",
    1,
    'return { list: /^Cpus_allowed_list:\\s*(\\S+)/m.exec(require("fs").readFileSync("/proc/self/status", "utf8"))[1] };',
  );
  const found = pinPeers([peer], 1);
  if (found.processors === undefined) {
    expect(pinnedText(found)).toMatch(/^not pinned: ./);
    return;
  }
  const { answers } = await peer.ask("where");
  expect(answers).toEqual([{ list: String(found.processors[0]) }]);
  expect(pinnedText(found)).toBe(`on processors ${found.processors[0]}`);
});

test("a peer with a process that cannot start is reported", async () => {
  const missing = { file: "/nowhere/program", args: [], env: {} };
  const peer = await new Peer("missing", [missing]).open();
  expect(peer.failure).toContain("ENOENT");
  expect((await peer.ask("x")).error).toContain("ENOENT");
});

test.each([1, 2, 3, 4, 8])("%d ranks: counts, sizes and graphs fit", (ranks) => {
  for (const quick of [true, false]) {
    for (const each of rowsOf(ranks, { quick })) {
      const words = each.command(1).split(" ");
      const [, collective, calls, , count, iterations, , check, ...traffic] = words;
      expect(Number(count)).toBeGreaterThan(0);
      expect(check).toBe("1");
      if (Number(calls) > 0) expect(Number(iterations) % Number(calls)).toBe(0);
      expect(traffic).toHaveLength(collective === "allToAllv" ? ranks * ranks : 0);
    }
  }
});
