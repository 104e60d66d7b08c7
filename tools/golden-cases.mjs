// Draws calls for `twinccl golden record`: every set-up, collective, type and operator, counts at the edges of NCCL's plans.
// npm run -s golden:cases -- --help
// A process of NCCL has one size of buffers, so `ch5` and `smallbuf` each need a file of their own.
import { readFileSync, writeFileSync } from "node:fs";
import { graphTopology, ncclPlan, topologies } from "twinccl/algorithms";
import { listOf, oneOf, options, output, plain, whole } from "./options.mjs";
import { random } from "./verify-gpu/draw.mjs";

const values = options({
  name: "golden:cases",
  about: "Draws calls for `twinccl golden record`.",
  options: {
    out: { is: output, help: "where they go; needed" },
    cases: { is: whole(1), default: "2000", help: "how many" },
    seed: { is: whole(), default: "1", help: "of the draw" },
    ranks: { is: listOf(whole(2)), default: "2,3,4", help: "numbers of ranks" },
    machine: {
      is: plain("MACHINE"),
      default: "h200x8",
      help: "that one node; or h200-hosts, or a graph file of hosts: then counts lie beside NCCL's switch points",
    },
    cpu: {
      is: oneOf("intel", "amd"),
      default: "intel",
      help: "with a graph file: the hosts' processors",
    },
    setups: {
      is: oneOf("all", "chosen", "forced"),
      default: "all",
      help: "over hosts: calls that NCCL chooses for, such with a forced algorithm, or both",
    },
    least: {
      is: whole(1),
      help: "over hosts: least bytes that a rank sends, instead of switch points",
    },
    most: { is: whole(1), help: "with --least: most bytes that a rank sends" },
    sensitive: {
      help: "over hosts: sums and products of floats with moderate exponents alone",
    },
    environments: { is: listOf(plain("NAME")), default: "plain,ch1,sym", help: "set-ups of NCCL" },
  },
});
const refuse = (why) => {
  process.stderr.write(`golden-cases: ${why}\n`);
  process.exit(2);
};
if (values.out === undefined) refuse("name the file: --out cases.jsonl");

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

const isGraph = values.machine.includes(".");
const isSpread = isGraph || values.machine === "h200-hosts";
const machine = isGraph
  ? { xml: readFileSync(values.machine, "utf8"), ...(values.cpu === "amd" && { cpu: values.cpu }) }
  : values.machine;
if (!isGraph && !Object.hasOwn(topologies, machine)) {
  refuse(`--machine: found "${machine}", needs h200x8, h200-hosts or a graph file`);
}
const topologyOf = isGraph ? graphTopology(machine) : topologies[machine];
if (!isSpread && (values.least ?? values.most ?? values.sensitive) !== false) {
  refuse("--least, --most and --sensitive go with hosts: --machine h200-hosts or a graph file");
}
if ((values.least === undefined) !== (values.most === undefined)) {
  refuse("--least and --most go together");
}
if (values.most < values.least) {
  refuse(`--most: found ${values.most}, needs at least the bytes of --least ${values.least}`);
}
const hostSetups = ["Ring-LL", "Ring-Simple", "Tree-LL", "Tree-Simple", "PAT-Simple"].concat(
  isGraph ? ["Ring-LL128", "Tree-LL128"] : [],
);
/** Most bytes of a call over hosts. */
const mostBytes = isGraph ? 2 ** 21 : 2 ** 20;

/** The first byte of each choice of NCCL's model but the first, up to 2 MiB, counted as the model counts. */
const switchPoints = new Map();

function switchesOf(collective, ranks) {
  const key = `${collective}/${ranks}`;
  const blocks = collective === "reduceScatter" ? ranks : 1;
  const topology = topologyOf(ranks);
  const call = { version: "2.28", topology, collective, dtype: "uint8", op: "sum", root: 0 };
  const chosen = (bytes) => {
    const count = Math.ceil(bytes / blocks);
    const { algorithm, protocol } = ncclPlan({ ...call, count });
    return `${algorithm} ${protocol}`;
  };
  let found = switchPoints.get(key);
  if (found === undefined) {
    found = [];
    for (let low = 1; low < 2 ** 21; ) {
      const next = Math.ceil(low * 1.01) + blocks;
      if (chosen(next) !== chosen(low)) {
        let [from, to] = [low, next];
        while (to - from > 1) {
          const middle = (from + to) >> 1;
          if (chosen(middle) === chosen(low)) from = middle;
          else to = middle;
        }
        found.push(to);
      }
      low = next;
    }
    switchPoints.set(key, found);
  }
  return found;
}

/** Elements beside a switch point, a number of channels or a chunk, or of `--least` to `--most` bytes; of a block for a reduce-scatter. */
function hostCount(coll, n, elementBytes) {
  const blocks = coll === "reduceScatter" ? n : 1;
  if (values.least !== undefined) {
    const bytes = values.least + below(values.most - values.least + 1);
    return Math.max(1, Math.floor(bytes / blocks / elementBytes));
  }
  const edges = switchesOf(coll, n);
  const channel = pick([16_384, 32_768, 4096, 4096 * n, 65_536]) * (1 + below(4));
  const at = chance(2) && edges.length > 0 ? pick(edges) : chance(2) ? channel : 1 + below(400_000);
  const nearest = Math.floor(at / blocks / elementBytes) + pick([-2, -1, 0, 0, 1, 2]);
  return Math.max(1, Math.min(nearest, Math.floor(mostBytes / elementBytes)));
}

const draw = random(values.seed);
const { pick, below, chance } = draw;

/** A call over hosts. */
function drawHostCase() {
  const n = pick(values.ranks);
  const env = pick(values.environments);
  const isForced = values.setups === "forced" || (values.setups === "all" && chance(3));
  const ap = env === "plain" && isForced ? pick(hostSetups) : "default";
  let coll = pick(["allReduce", "allReduce", "reduceScatter", "reduceScatter", "reduce"]);
  if (ap.startsWith("Tree")) coll = "allReduce";
  if (ap.startsWith("PAT")) coll = "reduceScatter";
  const floats = ["f32", "f16", "bf16", "f64"];
  const dt = pick([
    ...(values.sensitive ? ["e4m3", "e5m2"] : Object.keys(types)),
    ...floats,
    ...(n > 8 ? ["e4m3", "e5m2"] : []),
  ]);
  const plainOps = ["sum", "sum", "prod", ...(values.sensitive ? [] : ["max", "min"])];
  const op = pick(ap.startsWith("PAT") ? plainOps : [...plainOps, "avg", "avg", "preMul"]);
  return {
    ...{ env, n, ap, coll, dt, op, count: hostCount(coll, n, types[dt]) },
    cls: chance(3) && !values.sensitive ? "wild" : "norm",
    ...(coll === "reduce" && { root: below(n) }),
    inplace: coll !== "reduce" && chance(4),
    offset: chance(4) ? pick([1, 2, 3, 5, 9]) : 0,
    h: "",
  };
}

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
while (lines.size < values.cases) {
  lines.add(JSON.stringify(isSpread ? drawHostCase() : drawCase()));
}
// A recording may end before its calls do, so those that NCCL chooses for come first.
const isForced = (line) => (line.includes('"ap":"default"') ? 0 : 1);
const head = JSON.stringify({ golden: 1, library: "nccl-2.28.9", topology: machine });
const written = isSpread
  ? [head, ...[...lines].sort((a, b) => isForced(a) - isForced(b))]
  : [...lines];
writeFileSync(values.out, `${written.join("\n")}\n`);
process.stdout.write(`golden-cases: ${lines.size} calls\n`);
