/** The executable itself, as it is installed; everything else is tested in process. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { posixReason, scriptReason } from "../../support/skipped.ts";

const main = fileURLToPath(new URL("../../../dist/cli/main.js", import.meta.url));

function run(...args: readonly string[]): {
  status: number | null;
  stdout: string;
  stderr: string;
} {
  return spawnSync(process.execPath, [main, ...args], { encoding: "utf8", timeout: 60_000 });
}

const folder = mkdtempSync(join(tmpdir(), "twinccl-main-"));
afterAll(() => rmSync(folder, { recursive: true }));

beforeAll(() => {
  if (!existsSync(main)) throw new Error("dist lacks the CLI: run `npm run build`");
});

test("a document on stdout, nothing on stderr, exit status 0", () => {
  const { status, stdout, stderr } = run(
    ..."bench all-reduce -b 64 -e 64 -n 1 -w 0 -g 2 --json".split(" "),
  );
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  expect(JSON.parse(stdout).results).toHaveLength(1);
});

describe.skipIf(posixReason !== "")(
  `without a reader of its output it ends quietly${posixReason}`,
  () => {
    /** The first line of a command, the rest of its output, and its exit status. */
    function headOf(...args: readonly string[]): {
      readonly stdout: string;
      readonly stderr: string;
    } {
      const line = '"$@" | head -1; echo "status $PIPESTATUS"';
      const words = ["-c", line, "bash", process.execPath, main, ...args];
      const { stdout, stderr } = spawnSync("bash", words, { encoding: "utf8", timeout: 60_000 });
      return { stdout, stderr };
    }

    test("as a program that prints, which keeps its trace so far", () => {
      const program = join(folder, "printing.mjs");
      writeFileSync(
        program,
        `export default async (comm) => {
         await comm.barrier();
         for (;;) { console.log("a line"); await new Promise((next) => setTimeout(next, 5)); }
       };`,
      );
      const trace = join(folder, "printing.txt");
      const { stdout, stderr } = headOf("run", program, "-n", "2", "--trace", trace);
      expect({ stdout, stderr }).toEqual({ stdout: "a line\nstatus 141\n", stderr: "" });
      expect(readFileSync(trace, "utf8")).toContain("barrier");
    });
  },
);

test("wrong usage is exit status 2", () => {
  const { status, stdout, stderr } = run("bogus");
  expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
  expect(stderr).toContain('unknown command "bogus"');
});

test.each(["18.20.8", "20.18.3"])(
  "Node.js %s is refused by name, before any command",
  (version) => {
    const fake = `Object.defineProperty(process, "versions", { value: { node: "${version}" } })`;
    const args = ["--import", `data:text/javascript,${encodeURIComponent(fake)}`, main];
    const line = [...args, "launch", "-n", "2", "none.mjs"];
    const { status, stderr } = spawnSync(process.execPath, line, { encoding: "utf8" });
    expect({ status, stderr }).toEqual({
      status: 2,
      stderr: `twinccl: found Node.js ${version}, needs 20.19 or newer\n`,
    });
  },
);

test.each([
  ["a file", "typed.tsx", "typed.tsx", "export default () => 1;\n"],
  ["an import", "typed.tsx", "importing.mjs", 'import "./typed.tsx";\nexport default () => 1;\n'],
])(
  "%s in TypeScript that Node.js does not load is wrong usage with a hint",
  (_, typed, name, text) => {
    writeFileSync(join(folder, typed), "export default () => 1;\n");
    const path = join(folder, name);
    writeFileSync(path, text);
    const { status, stderr } = run("run", path);
    expect(status).toBe(2);
    expect(stderr).toContain('Unknown file extension ".tsx"');
    expect(stderr).toContain('NODE_OPTIONS="--import tsx"');
  },
);

describe("run", () => {
  function program(name: string, text: string): string {
    const path = join(folder, `${name}.mjs`);
    writeFileSync(path, text);
    return path;
  }

  test.each([0, 1, 7])("that a rank ends with process.exit(%i) fails", (code) => {
    const path = program(
      `exits-${code}`,
      `export default async (comm) => {
         await comm.barrier();
         if (comm.rank === 0) return;
         if (comm.rank === 2) setTimeout(() => process.exit(${code}), 5);
         await comm.barrier();
       };`,
    );
    const trace = join(folder, "trace.txt");
    const { status, stdout, stderr } = run("run", path, "-n", "4", "--seed", "1", "--trace", trace);
    expect({ status, stdout }).toEqual({ status: 1, stdout: "" });
    expect(stderr).toBe(
      `twinccl run: the process ended with status ${code} before the run was over: ` +
        "ranks 1..3 had not returned\n" +
        "hint: a rank ends by returning or throwing; look for process.exit(), and for a promise that nothing resolves\n",
    );
    expect(readFileSync(trace, "utf8")).toMatch(/post rank=2 .*barrier/);
  });

  test("with a file that ends the process before the ranks start fails", () => {
    const path = program("early", "process.exit(0); export default () => 0;");
    const { status, stderr } = run("run", path);
    expect(status).toBe(1);
    expect(stderr).toContain("ended with status 0 before the run was over: no rank was at work");
  });

  test("with a file that waits for ever before the ranks start fails", () => {
    const path = program("never", "await new Promise(() => {}); export default () => 0;");
    const { status, stderr } = run("run", path);
    expect(status).toBe(1);
    expect(stderr).toContain("before the run was over: no rank was at work");
  });

  test("in which a callback throws fails, and shows the error", () => {
    const path = program(
      "throws",
      `export default (comm) => new Promise(() => setTimeout(() => { throw new Error("mine"); }));`,
    );
    const { status, stderr } = run("run", path, "-n", "2");
    expect(status).toBe(1);
    expect(stderr).toContain("Error: mine");
    expect(stderr).toContain("before the run was over: ranks 0, 1 had not returned");
  });

  test("in which a rank awaits for ever exits 1 and names it", () => {
    const path = program(
      "awaits",
      "export default (comm) => comm.rank === 1 ? new Promise(() => {}) : comm.rank;",
    );
    const { status, stdout, stderr } = run("run", path, "-n", "3");
    expect({ status, stdout }).toEqual({ status: 1, stdout: "" });
    expect(stderr).toMatch(/^twinccl run: rank 1 of 3 failed on "run"\n/);
    expect(stderr).toContain("rank 1 waits for something that can no longer happen");
    expect(stderr).not.toContain("before the run was over");
  });

  test("in which a rank awaits for ever while others wait for it names them all", () => {
    const path = program(
      "holds",
      "export default (comm) => comm.rank === 1 ? new Promise(() => {}) : comm.barrier();",
    );
    const { status, stderr } = run("run", path, "-n", "3");
    expect(status).toBe(1);
    expect(stderr).toMatch(/^twinccl run: 3 of 3 ranks failed/);
    expect(stderr).toContain("deadlock: rank 1 can no longer make a call that others wait for");
    expect(stderr).toMatch(/rank 1 +DeadlockError: .* never returned/);
  });

  test("that succeeds leaves no listener or timer", () => {
    const path = program("fine", "export default (comm) => comm.rank;");
    const { status, stdout, stderr } = run("run", path, "-n", "2");
    expect({ status, stdout, stderr }).toEqual({
      status: 0,
      stdout: "rank 0: 0\nrank 1: 1\n",
      stderr: "",
    });
  });
});

describe.each([
  ["verify", ["--against", "sim"]],
  ["trace", []],
] as const)("%s", (command, more) => {
  test("of a program in which a rank ends the process fails", () => {
    const path = join(folder, `exits-in-${command}.mjs`);
    writeFileSync(
      path,
      `export default async (comm) => {
         await comm.barrier();
         if (comm.rank === 2) setTimeout(() => process.exit(0), 5);
         await new Promise((resolve) => setTimeout(resolve, 60_000));
       };`,
    );
    const { status, stdout, stderr } = run(command, path, "-n", "4", ...more);
    expect(status).toBe(1);
    expect(stderr).toBe(
      `twinccl ${command}: the process ended with status 0 before the run was over: ` +
        "ranks 0..3 had not returned\n" +
        "hint: a rank ends by returning or throwing; look for process.exit(), and for a promise that nothing resolves\n",
    );
    if (command === "trace") expect(stdout).toMatch(/post rank=2 .*barrier/);
  });

  test.each([
    ["ends the process", "process.exit(0); export default () => 0;"],
    ["waits for ever", "await new Promise(() => {}); export default () => 0;"],
  ])("of a file that %s before the ranks start fails", (_, text) => {
    const path = join(folder, `early-in-${command}.mjs`);
    writeFileSync(path, text);
    const { status, stderr } = run(command, path, ...more);
    expect(status).toBe(1);
    const ended = "the process ended with status 0 before the run was over";
    expect(stderr).toContain(`twinccl ${command}: ${ended}: no rank was at work\n`);
  });
});

test.each([
  ["ends the process", "process.exit(0);"],
  ["ends the process with a status", "process.exit(3);"],
  ["waits for ever", "await new Promise(() => {});"],
])("an algorithm file that %s is refused by its name", (_, text) => {
  const path = join(folder, "early-algorithm.mjs");
  writeFileSync(path, `${text} export default () => 0;`);
  const found = run("explain", "all-reduce", "--algorithm", path);
  expect(found).toMatchObject({
    status: 1,
    stdout: "",
    stderr: `twinccl: --algorithm: ${path}: the process ended before it was loaded\n`,
  });
});

test.each([
  ["bad.mjs", "export default async (comm) => {\n  const a = ;\n};\n", "2: Unexpected token ';'\n"],
  ["end.mjs", "export default (", "1: Unexpected end of input\n"],
  ["cut.mjs", "export default async (comm) => {\n", "2: Unexpected end of input\n"],
  ["name.mjs", 'import { nope } from "node:fs";', "1: The requested module 'node:fs' does not"],
])("a syntax error in %s is reported by file and line", (name, text, message) => {
  const path = join(folder, name);
  writeFileSync(path, text);
  for (const line of [["run"], ["trace"], ["verify", "--against", "sim"]]) {
    const { status, stdout, stderr } = run(line[0] ?? "", path, ...line.slice(1));
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(stderr).toContain(`${path}:${message}`);
    expect(stderr).not.toMatch(/^ {4}at |^ +$/m);
  }
});

describe("an algorithm of a file", () => {
  const explained = (...args: readonly string[]) =>
    run("explain", "all-reduce", "--ranks", "3", "--count", "3", "--algorithm", ...args);

  test("that imports the package itself, and may have # in its name", () => {
    const [path, other] = [join(folder, "own#.mjs"), join(folder, "own.cjs")];
    const line = new URL("../../../examples/line.mjs", import.meta.url).href;
    writeFileSync(path, `import line from "${line}"; export { line as up }; export const one = 1;`);
    writeFileSync(other, `module.exports = { down: { write() {} } };`);
    for (const text of [path, `${path}#up`]) {
      const { status, stdout, stderr } = explained(text);
      expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
      expect(stdout).toContain("allReduce float32[3] sum on 3 ranks: line\n");
    }
    expect(explained(`${other}#down`).stderr).toContain(`${other}#down: name: found undefined`);
  });

  test("with a syntax error is reported by file and line", () => {
    const path = join(folder, "own-syntax.mjs");
    writeFileSync(path, "\nexport default {;\n");
    const { status, stdout, stderr } = explained(path);
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(stderr).toContain(`twinccl explain: --algorithm: ${path}:2: Unexpected token ';'`);
    expect(stderr).not.toMatch(/^ {4}at /m);
  });
});

test("one in a file that it imports names that file", () => {
  writeFileSync(join(folder, "inner.mjs"), "let let = 1;\n");
  writeFileSync(join(folder, "outer.mjs"), 'import "./inner.mjs";\nexport default () => 1;\n');
  const { status, stderr } = run("run", join(folder, "outer.mjs"));
  expect(status).toBe(2);
  expect(stderr).toMatch(/inner\.mjs:1: /);
});

test("a missing import is reported without a stack", () => {
  const path = join(folder, "gone.mjs");
  writeFileSync(path, 'import "./no-such.mjs";\n');
  const { status, stderr } = run("run", path);
  expect(status).toBe(2);
  expect(stderr).toMatch(/gone\.mjs: Cannot find module .*no-such\.mjs/);
  expect(stderr).not.toMatch(/^ {4}at /m);
});

test("an error that a program throws while it is loaded is a bug of that program, with its stack", () => {
  const path = join(folder, "parse.mjs");
  writeFileSync(path, 'JSON.parse("{");\n');
  const { status, stderr } = run("run", path);
  expect(status).toBe(1);
  expect(stderr).toMatch(/SyntaxError: [\s\S]*parse\.mjs:1:6/);
});

test("a full disk is reported in one line", () => {
  const line = `"${process.execPath}" "${main}" explain all-reduce -n 2 > /dev/full`;
  const { status, stderr } = spawnSync("sh", ["-c", line], { encoding: "utf8" });
  expect(status).toBe(1);
  expect(stderr).toMatch(/^twinccl: cannot write: ENOSPC.*\n$/);
});

test("an unread standard error ends no command", () => {
  const line = `("${process.execPath}" "${main}" bogus; echo $?) 2>&1 >&3 | true`;
  const { stdout } = spawnSync("bash", ["-c", `{ ${line}; } 3>&1`], { encoding: "utf8" });
  expect(stdout).toBe("2\n");
});

test.skipIf(scriptReason !== "")(
  `a terminal that cannot erase a line gets no line of progress${scriptReason}`,
  () => {
    const onTerminal = (name: string): string => {
      const line = `script -qec '"$NODE" "$MAIN" explain all-reduce -n 2' /dev/null`;
      const env = { ...process.env, TERM: name, NODE: process.execPath, MAIN: main };
      const options = { encoding: "utf8", env, input: "" } as const;
      return spawnSync("sh", ["-c", line], options).stdout;
    };
    expect(onTerminal("xterm")).toContain("\x1b[K");
    expect(onTerminal("dumb")).not.toContain("\x1b");
  },
);
