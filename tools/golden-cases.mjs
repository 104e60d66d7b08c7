// Draws calls for `twinccl golden record`: every set-up, collective, type and operator, counts at the edges of NCCL's plans.
// npm run -s golden:cases -- --help
// A process of NCCL has one size of buffers, so `ch5` and `smallbuf` each need a file of their own.
import { writeFileSync } from "node:fs";
import { listOf, options, plain, whole } from "./options.mjs";
import { random } from "./verify-gpu/draw.mjs";

const values = options({
  name: "golden:cases",
  about: "Draws calls for `twinccl golden record`.",
  options: {
    out: { is: plain("FILE"), help: "where they go; needed" },
    cases: { is: whole(1), default: "2000", help: "how many" },
    seed: { is: whole(), default: "1", help: "of the draw" },
    ranks: { is: listOf(whole(2)), default: "2,3,4", help: "numbers of ranks" },
    environments: { is: listOf(plain("NAME")), default: "plain,ch1,sym", help: "set-ups of NCCL" },
  },
});
if (values.out === undefined) {
  process.stderr.write("golden-cases: name the file: --out cases.jsonl\n");
  process.exit(2);
}

const types = {
  ...{ i8: 1, u8: 1, i32: 4, u32: 4, i64: 8, u64: 8 },
  ...{ f16: 2, f32: 4, f64: 8, bf16: 2, e4m3: 1, e5m2: 1 },
};
const symmetricTypes = ["f32", "f16", "bf16", "e4m3", "e5m2"];
const setups = ["default", "default"].concat(
  ["Ring", "Tree"].flatMap((algo) => ["LL", "LL128", "Simple"].map((proto) => `${algo}-${proto}`)),
);
const counts = [
  ...[1, 3, 5, 17, 31, 33, 100, 511, 513, 1000, 1023, 2047, 4097, 4099, 8191, 8192, 16_385],
  ...[20_011, 30_011, 32_768, 65_537, 73_729, 100_003, 131_071, 196_609, 262_144, 300_007],
];

const draw = random(values.seed);
const { pick, below, chance } = draw;

function drawCase() {
  const n = pick(values.ranks);
  const env = pick(values.environments);
  const symmetric = env === "sym";
  const ap = symmetric ? "default" : pick(setups);
  // A tree serves all-reduces alone.
  const coll = ap.startsWith("Tree")
    ? "allReduce"
    : pick(symmetric ? ["allReduce", "reduceScatter"] : ["allReduce", "reduceScatter", "reduce"]);
  const dt = pick(symmetric ? symmetricTypes : Object.keys(types));
  const op = symmetric ? "sum" : pick(["sum", "prod", "max", "min", "avg", "avg", "preMul", "sum"]);
  const near = Math.round((4096 * n * (1 + below(8))) / types[dt]) + pick([-1, 0, 1]);
  let count = chance(4) ? Math.max(1, near) : pick(counts);
  let offset = chance(3) ? pick([1, 2, 3, 5, 9]) : 0;
  if (symmetric) {
    // At other addresses NCCL computes 1- and 2-byte types wrongly, and the call is refused.
    const aligned = 4 / Math.min(4, types[dt]);
    count = Math.max(aligned, count - (count % aligned));
    offset *= aligned;
  }
  return {
    ...{ env, n, ap, coll, dt, op, count },
    cls: chance(3) ? "wild" : "norm",
    ...(coll === "reduce" && { root: below(n) }),
    inplace: !symmetric && coll !== "reduce" && chance(3),
    offset,
    h: "",
  };
}

const lines = new Set();
while (lines.size < values.cases) lines.add(JSON.stringify(drawCase()));
writeFileSync(values.out, `${[...lines].join("\n")}\n`);
process.stdout.write(`golden-cases: ${lines.size} calls\n`);
