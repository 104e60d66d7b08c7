/** `twinccl invariant`: its text, its document, and its errors. */
import { describe, expect, test } from "vitest";
import { cli } from "./harness.ts";

const sum = "invariant all-reduce -d bfloat16 --count 5120..10M";

test("an invariant answer has its reason, the folds and the price", async () => {
  const { status, out, err } = await cli(
    `${sum} --nccl NCCL_ALGO=allreduce:tree,NCCL_PROTO=Simple`,
  );
  expect({ status, err }).toEqual({ status: 0, err: "" });
  expect(out).toContain("settings: NCCL_ALGO=allreduce:tree NCCL_PROTO=Simple\n");
  for (const name of ["size", "position", "channels", "protocol"]) {
    expect(out).toMatch(new RegExp(`^${name} +invariant  `, "m"));
  }
  expect(out).toMatch(/^ {2}8 ranks +5120\.\.10485760 +Tree Simple +up to 24 channels +r7 \+ r6 /m);
  expect(out).toMatch(/^ {2}NCCL_ALGO=allreduce:tree( +[\d.]+ ~){3}$/m);
  expect(out).toMatch(/^ {2}as asked( +[\d.]+ ~){3}$/m);
  expect(out).toMatch(/^ {2}NCCL's own choice( +[\d.]+ ~){3}$/m);
  expect(out).toMatch(/^ {2}predicted for 8 x NVIDIA H200, NVSwitch, NCCL 2\.28\.9$/m);
  expect(out).toMatch(/^ {2}~ extrapolated: measured with float32$/m);
});

test("a dependence is shown by two folds and by contributions", async () => {
  const { out } = await cli(`${sum} --row 5120 --ask size --nccl NCCL_ALGO=ring`);
  expect(out).toMatch(/^size {2}depends/m);
  expect(out).toMatch(/element 640 of 5120 .* r2 \+ r3 /);
  expect(out).toMatch(/element 640 of 10240 .* r1 \+ r2 /);
  expect(out).toContain("with r0 = 512, r1 = 1, r2 = -512, all others 0: 0x3f80 and 0x0000\n");
});

test("JSON holds the facts", async () => {
  const { out } = await cli(`${sum} --ranks 4,8 --ask size,ranks --json --nccl NCCL_ALGO=Tree`);
  const document = JSON.parse(out);
  expect(document).toMatchObject({
    collective: "allReduce",
    ranks: [4, 8],
    dtype: "bfloat16",
    op: "sum",
  });
  expect(document.answers).toMatchObject([
    { question: "size", isInvariant: true },
    { question: "ranks", isInvariant: true },
  ]);
  expect(document.cheapest).toMatchObject([{ variables: { NCCL_ALGO: "allreduce:tree" } }]);
});

test("commas and semicolons within a value belong to it", async () => {
  const { status, out } = await cli(
    `${sum} --ask size --nccl NCCL_ALGO=ring;allreduce:tree,ring,NCCL_PROTO=^LL`,
  );
  expect(status).toBe(0);
  expect(out).toContain("settings: NCCL_ALGO=ring;allreduce:tree,ring NCCL_PROTO=^LL\n");
});

describe("wrong usage", () => {
  test.each([
    ["invariant", "name a collective"],
    ["invariant all-to-all", "allToAll"],
    ["invariant all-reduce --count 5..3", "counts: found 5..3"],
    ["invariant all-reduce --count 1..2..3", '--count: found "1..2..3"'],
    ["invariant all-reduce --count x", '--count: found "x"'],
    ["invariant all-reduce --count 5..x", '--count: found "5..x"'],
    ["invariant all-reduce --row x", '--row: found "x"'],
    ["invariant all-reduce --topology mars", '--topology: found "mars"'],
    ["invariant all-reduce --nccl NCCL_MAX_CTAS=65", "found 65, needs 1..64"],
    ["invariant all-reduce --launch", "--launch goes with --backend"],
    ["invariant all-reduce --backend gpu", '--backend: found "gpu"'],
    ["invariant all-reduce --backend sim --sizes x", '--sizes: found "x"'],
    ["invariant all-reduce --backend nccl --topology h200-hosts", "add --launch"],
    ["invariant broadcast --backend sim", "broadcast copies"],
    ["invariant all-reduce --ranks 0", '--ranks: found "0", needs whole numbers of at least 1'],
    ["invariant all-reduce --ranks -1", '--ranks: found "-1", needs whole numbers of at least 1'],
    ["invariant all-reduce --ranks 1e9", '--ranks: found "1e9", needs whole numbers of at least 1'],
    ["invariant all-reduce --ranks 1000000000", "ranks: found 1000000000, needs at most 2048"],
    [
      "invariant all-reduce --topology h200-hosts --ranks 2049",
      "ranks: found 2049, needs at most 2048",
    ],
    ["invariant all-reduce --ranks 4,4", '--ranks: found "4" twice'],
    ["invariant all-reduce --ask size,size", '--ask: found "size" twice'],
    ["invariant all-reduce --ask size --ask position", '--ask: found "size" and "position"'],
    [
      "invariant all-reduce --nccl NCCL_ALGO=ring --nccl NCCL_PROTO=LL",
      '--nccl: found "NCCL_ALGO=ring" and "NCCL_PROTO=LL", needs one value',
    ],
    ["invariant all-reduce --nccl=", '--nccl: found "", needs NCCL\'s variables'],
    ["invariant all-reduce --topology h200x8,h200x8 --ask hosts", '"h200x8" twice'],
    ["invariant all-reduce --topology none.xml", "--topology: there is no file none.xml"],
    ["invariant all-reduce --count 1..9007199254740993", "of counts below 2^53"],
    ["invariant all-reduce --row 9007199254740993", "below 2^53"],
    ["invariant all-reduce --row 100 --count 5..50", "row: found 100, needs a multiple of it"],
    [
      "invariant all-reduce --nccl NCCL_MIN_CTAS=8,NCCL_MAX_NCHANNELS=4",
      'NCCL_MIN_CTAS: found "8", needs at most NCCL_MAX_NCHANNELS, 4',
    ],
    ["invariant all-reduce --nccl NCCL_ALGO=ring,foo", 'NCCL_ALGO: found "foo", needs words of'],
    ["invariant all-reduce --ranks 9", "found 9 ranks, has 8 GPUs"],
    ["invariant all-reduce --ranks a", '--ranks: found "a"'],
    ["invariant all-reduce --nccl NCCL_ALGO=trea", 'NCCL_ALGO: found "trea"'],
    ["invariant all-reduce --nccl NCCL_FOO=1", "NCCL_FOO"],
    ["invariant all-reduce --nccl protocol=LL", '--nccl: found "protocol=LL"'],
    ["invariant all-reduce --nccl NCCL_PROTO=LL,NCCL_PROTO=LL", "set twice"],
    ["invariant all-reduce --ask weather", '--ask: found "weather"'],
    [
      "invariant all-reduce --ask ranks",
      '"ranks" with one number of ranks, needs several to compare',
    ],
    ["invariant all-reduce --root 1", "--root: allReduce has none"],
    ["invariant broadcast --op sum", "--op: broadcast has none"],
    ["invariant all-reduce --like nccl-2.31", "--like"],
  ])("%s", async (line, text) => {
    const { status, out, err } = await cli(line);
    expect({ status, out }).toEqual({ status: 2, out: "" });
    expect(err).toContain(text);
  });
});

test("times are marked where they are extrapolated, and left out where nothing was measured", async () => {
  const line = "invariant all-reduce --ask size --count 5120..10M --nccl NCCL_ALGO=allreduce:tree";
  const measured = await cli(`${line} --ranks 4`);
  expect(measured.out).toMatch(/^ {2}NCCL_ALGO=allreduce:tree( +[\d.]+){3}$/m);
  expect(measured.out).not.toContain("extrapolated");
  const { out } = await cli(`${line} --ranks 4 --topology h200-hosts`);
  expect(out).toMatch(
    /^ {2}NCCL_ALGO=allreduce:tree NCCL_MAX_NCHANNELS=1\n {2}not predicted: no times of 4 hosts/m,
  );
});

test("the head has the singular of one element", async () => {
  const { out } = await cli("invariant all-reduce --count 1..1");
  expect(out).toMatch(/^allReduce float32 sum of 1 element, as NCCL /);
});

test("copies have neither folds nor a price", async () => {
  const { status, out } = await cli("invariant broadcast --ranks 4");
  expect(status).toBe(0);
  expect(out).toMatch(/^size +invariant {2}contributions are copied$/m);
  expect(out).not.toContain("fewest settings");
});
