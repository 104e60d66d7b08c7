/** `--algorithm FILE`: an algorithm from a file, named where those of the catalogue are. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { catalogue } from "twinccl/algorithms";
import { afterAll, describe, expect, test } from "vitest";
import { longTest } from "../../support/long-test.ts";
import { cli } from "./harness.ts";

const folder = mkdtempSync(join(tmpdir(), "twinccl-algorithm-"));
afterAll(() => rmSync(folder, { recursive: true }));

const line = "examples/line.mjs";
const lineUrl = new URL("../../../examples/line.mjs", import.meta.url).href;
const call = "all-reduce --ranks 4 --count 10";
const quick = "all-reduce -b 64 -e 64 -n 1 -w 0 -g 4";

/** A file with this text, which may speak of `line`. */
function file(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, `import line from ${JSON.stringify(lineUrl)};\n${text}\n`);
  return path;
}

/** An algorithm of a collective that copies. */
const star = `const star = {
  name: "star",
  summary: "the root sends to every other rank",
  source: "this test",
  chunksPerBlock: () => 1,
  credits: () => 0,
  cost: ({ ranks, count }) => ({ steps: ranks - 1, sentElements: (ranks - 1) * count }),
  write: (program) => program.everyRank((lane, rank) => {
    const [input, output] = [0, 1];
    if (rank !== program.root) return lane.recv(program.root, output);
    lane.copy(input, output);
    for (let to = 0; to < program.ranks; to++) if (to !== rank) lane.send(output, to);
  }),
};`;

async function fine(text: string): Promise<string> {
  const { status, out, err } = await cli(text);
  expect({ status, err }).toEqual({ status: 0, err: "" });
  return out;
}

async function refused(text: string): Promise<string> {
  const { status, out, err } = await cli(text);
  expect({ status, out }).toEqual({ status: 2, out: "" });
  expect(err).not.toMatch(/^ {4}at /m);
  return err;
}

const unclaimed = "no claim is made about NCCL's bits";

describe("an algorithm in a file", () => {
  test("is explained, without a claim", async () => {
    const out = await fine(`explain ${call} --algorithm ${line}`);
    expect(out).toMatch(/^allReduce float32\[10\] sum on 4 ranks: line\n/);
    expect(out).toContain(`${unclaimed}: its algorithm is the caller's own`);
    expect(out).toContain("0      0..9      ((r0 + r1) + r2) + r3");
    const document = JSON.parse(await fine(`explain ${call} --algorithm ${line} --json`));
    expect(document).toMatchObject({ algorithm: "line", steps: 6 });
    expect(document.claim).toContain(unclaimed);
  });

  test("is traced, without a claim", async () => {
    const traced = `trace ${call} --algorithm ${line}`;
    expect(await fine(traced)).toMatch(
      /^0 post rank=0 .* allReduce float32\[10\] line unclaimed\n/,
    );
    const svg = await fine(`${traced} --format svg`);
    expect(svg).toContain(
      `<title>allReduce, 4 ranks, line of ${line}: sound on 4 ranks; ${unclaimed}<`,
    );
  });

  test("is measured, without a claim", async () => {
    const out = await fine(`bench ${quick} --algorithm ${line}`);
    expect(out).toContain(`# line of ${line}: sound on 4 ranks; ${unclaimed}\n`);
    expect(await fine(`bench ${quick} --algorithm ${line} --csv`)).toContain(
      "\nallReduce,sim,4,line,",
    );
  });

  test("is predicted beside those of the catalogue", async () => {
    const predicted = `predict all-reduce --ranks 16 -b 4M -e 4M --algorithm ${line},ring`;
    const out = await fine(predicted);
    expect(out).toMatch(/^# +size +ring +line {3}/m);
    expect(out).toContain(`# line of ${line}: sound on 16 ranks; ${unclaimed}\n`);
    const { own, results } = JSON.parse(await fine(`${predicted} --json`));
    expect(own).toEqual([{ algorithm: "line", file: line, soundOn: 16 }]);
    const [{ algorithms }] = results;
    const of = (name: string) =>
      algorithms.find(({ algorithm }: { algorithm: string }) => algorithm === name);
    expect(of("line").predictedNs).toBeGreaterThan(of("ring").predictedNs);
  });

  longTest(
    "is judged on fewer ranks where its program is too large, and that is said",
    async () => {
      const judged = `sound on 781 ranks, not judged on 100000; ${unclaimed}`;
      const output = await fine(`explain all-reduce --ranks 100000 --algorithm ${line} --count 8`);
      expect(output).toContain("the algorithm's closed form");
      expect(output).toContain(`line of ${line}: ${judged}`);
      const predicted = `predict all-reduce --ranks 100000 -b 8 -e 8 --algorithm ${line}`;
      expect(await fine(predicted)).toContain(judged);
    },
  );

  test("of a collective that copies gives NCCL's result", async () => {
    const path = file("star.mjs", `${star}\nexport default star;`);
    const out = await fine(`bench broadcast -b 64 -e 64 -n 1 -w 0 -g 3 -r all --algorithm ${path}`);
    expect(out).toContain(`# star of ${path}: sound on 3 ranks; copies bytes, as every plan does`);
    expect(await fine(`trace broadcast --ranks 3 --root 2 --algorithm ${path}`)).toContain(
      "broadcast float32[1024] star\n",
    );
  });

  test("may stand in the name of a backend", async () => {
    const backend = `sim:allReduce=${line}`;
    expect(await fine(`bench ${quick} --backend ${backend} --csv`)).toContain(",4,line,");
    expect(await fine(`explain ${call} --backend ${backend}`)).toContain("4 ranks: line\n");
    const program = file(
      "sum.mjs",
      `export default async (comm) => {
        const send = comm.alloc("int32", 1).fill(comm.rank);
        await comm.allReduce({ send, op: "sum" });
        return comm.explain({ collective: "allReduce", dtype: "int32", op: "sum", count: 1 }).algorithm;
      };`,
    );
    expect(await fine(`run ${program} -n 2 --backend ${backend}`)).toContain("rank 1: 'line'\n");
    const compared = `verify --against ${backend} -n 4 --collective all-reduce -d int32 --counts 7`;
    expect(await fine(compared)).toMatch(/allReduce +\d+ .* identical\n/);
  });
});

describe("the choice among a file's algorithms", () => {
  const two = `export const down = { ...line, name: "downward" };
    export const up = { ...line, name: "upward" };`;
  const nameIn = async (path: string): Promise<string> =>
    JSON.parse(await fine(`explain ${call} --algorithm ${path} --json`)).algorithm;

  test("its default export", async () => {
    expect(await nameIn(file("default.mjs", `${two}\nexport default line;`))).toBe("line");
  });

  test("the only one that it exports, beside a program and other things", async () => {
    const text = `export const own = line;
      export { own as again };
      export const most = 8, nothing = null;
      export default async (comm) => comm.rank;`;
    expect(await nameIn(file("only.mjs", text))).toBe("line");
  });

  test("the one that is named, by its export or by itself", async () => {
    const path = file("two.mjs", `${two}\nexport default line;`);
    expect(await nameIn(`${path}#up`)).toBe("upward");
    expect(await nameIn(`${path}#downward`)).toBe("downward");
    expect(await nameIn(`${path}#default`)).toBe("line");
    const all = await fine(
      `predict all-reduce --algorithm ${path}#up,${path}#down,chain -b 8 -e 8`,
    );
    expect(all).toMatch(/^# +size +chain +upward +downward /m);
  });

  test("the one that has the name of the collective", async () => {
    const collectives = file("collectives.mjs", `${star}\nexport { line as allReduce, star };`);
    expect(await nameIn(collectives)).toBe("line");
    const table = `${star}\nexport default { broadcast: star, allReduce: line };`;
    expect(await nameIn(file("table.mjs", table))).toBe("line");
    expect(await nameIn(`${file("table.mjs", table)}#line`)).toBe("line");
  });

  test("a missing name among several is refused without a guess", async () => {
    const path = file("several.mjs", two);
    expect(await refused(`explain ${call} --algorithm ${path}`)).toContain(
      `--algorithm: ${path} has 2 algorithms; name one: ${path}#down or ${path}#up`,
    );
    expect(await refused(`explain ${call} --algorithm ${path}#left`)).toContain(
      `--algorithm: ${path} has no algorithm "left"; name one: ${path}#down or ${path}#up`,
    );
  });

  test("a file without a slash is recognised by its ending", async () => {
    expect(await refused(`explain ${call} --algorithm nothing.mjs`)).toContain(
      "--algorithm: there is no file nothing.mjs",
    );
    expect(await refused(`explain ${call} --algorithm nothing.ts#up`)).toContain(
      "--algorithm: there is no file nothing.ts",
    );
  });
});

describe("an unusable file is refused before anything runs", () => {
  test.each<[what: string, text: string, message: string | RegExp]>([
    [
      "nothing exported",
      "",
      /exports no algorithm: it exports nothing; needs export default \{ name,/,
    ],
    [
      "no algorithm",
      "export default () => 1;",
      /exports no algorithm: default is a function; needs/,
    ],
    ["a list", "export default [1];", /exports no algorithm: default is an array; needs/],
    ["a missing import", 'import "./no.mjs";', /--algorithm: .*: Cannot find module/],
    [
      "no write",
      "export default { ...line, write: 1 };",
      /: write: found number, needs a function/,
    ],
    [
      "no order",
      "export default { ...line, order: undefined };",
      /: order: found undefined, needs a/,
    ],
    [
      "no folds",
      "export default { ...line, order: (folds) => folds.own(0) };",
      /"line" is not sound on 4 ranks\n +association +/,
    ],
    [
      "a write that throws",
      'export default { ...line, write: () => { throw new Error("not today"); } };',
      /"line" cannot be written for 4 ranks: not today/,
    ],
  ])("%s", async (what, text, message) => {
    const path = file(`bad ${what}.mjs`.replaceAll(" ", "-"), text);
    const err = await refused(`explain ${call} --algorithm ${path}`);
    expect(err).toMatch(message);
    expect(err).toContain(path);
    for (const command of ["trace all-reduce", "bench all-reduce", "predict all-reduce"]) {
      const ranks = command.startsWith("bench") ? "-g 4" : "-n 4";
      const output = await refused(`${command} ${ranks} --algorithm ${path}`);
      expect(output.replace(/^twinccl \w+|see .*--help\n/gm, "")).toBe(
        err.replace(/^twinccl \w+|see .*--help\n/gm, ""),
      );
    }
  });

  test("a folder, and a missing file", async () => {
    mkdirSync(join(folder, "empty"));
    expect(await refused(`trace ${call} --algorithm ${folder}/empty`)).toContain(
      `--algorithm: ${folder}/empty is a folder; name a file in it`,
    );
    for (const command of [`explain ${call}`, `trace ${call}`, "bench all-reduce"]) {
      expect(await refused(`${command} --algorithm ./no.mjs`)).toContain(
        "--algorithm: there is no file ./no.mjs",
      );
    }
    expect(await refused("predict all-reduce --algorithm ring,./no.mjs")).toContain(
      "--algorithm: there is no file ./no.mjs",
    );
    expect(await refused("bench all-reduce --backend sim:allReduce=./no.mjs")).toContain(
      "--backend: allReduce: there is no file ./no.mjs",
    );
  });

  test("a file of another collective, which is named", async () => {
    const path = file("other.mjs", `${star}\nexport default star;`);
    for (const command of ["explain", "trace", "bench", "predict"]) {
      expect(await refused(`${command} all-reduce --algorithm ${path}`)).toMatch(
        /"star" is sound as broadcast, not as allReduce: name that collective, or mend the algorithm/,
      );
    }
    expect(await refused(`explain all-gather --algorithm ${line}`)).toContain(
      '"line" is sound as allReduce, not as allGather',
    );
  });

  test("an output in its place", async () => {
    const path = file("kept.mjs", "export default line;");
    const text = readFileSync(path, "utf8");
    for (const command of [`trace ${call}`, `bench ${quick}`]) {
      const err = await refused(`${command} --algorithm ${path}#default --out ${path}`);
      expect(err).toContain(`--out ${path}: is the same file as --algorithm; name another one`);
      expect(readFileSync(path, "utf8")).toBe(text);
    }
    for (const line of [
      `bench ${quick} --backend sim:allReduce=${path} --out ${path}`,
      `predict all-reduce -b 8 -e 8 --algorithm ring,${path}#default --out ${path}`,
    ]) {
      expect(await refused(line)).toMatch(
        /is the same file as (allReduce of --backend|--algorithm); name another one/,
      );
      expect(readFileSync(path, "utf8")).toBe(text);
    }
  });

  test("a program that fails on some numbers of ranks only is not taken for another collective's", async () => {
    const text = `const write = (program) => {
        if (program.ranks !== 9) return line.write(program);
        program.everyRank((lane, rank) => {
          if (rank > 0) lane.send(0, rank - 1);
          if (rank < 8) lane.recv(rank + 1, 1);
        });
      };
      export default { ...line, write };`;
    const nine = `explain all-reduce --ranks 9 --algorithm ${file("nine.mjs", text)}`;
    const err = await refused(nine);
    expect(err).toContain('"line" is not sound on 9 ranks');
    expect(err).not.toContain("sound as");
    await fine(nine.replace("9", "8"));
  });

  test("two algorithms of one name in a comparison", async () => {
    const path = file("ring.mjs", 'export default { ...line, name: "ring" };');
    expect(await refused(`predict all-reduce --algorithm ring,${path}`)).toContain(
      '--algorithm: two are called "ring"; give yours another name',
    );
  });

  test("an unknown name is refused with the hint that a file may be named", async () => {
    const names = Object.keys(catalogue.allReduce).join(", ");
    expect(await refused(`explain ${call} --algorithm magic`)).toContain(
      `--algorithm: found "magic", needs one of ${names}, or a file with one of your own, such as ./line.mjs\n`,
    );
  });
});
