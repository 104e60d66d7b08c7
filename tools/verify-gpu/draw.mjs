// Draws the calls of the property run: settings of NCCL, and calls with counts at the edges of its plans.
const bytesOf = {
  ...{ int8: 1, uint8: 1, int32: 4, uint32: 4, int64: 8, uint64: 8, float16: 2, bfloat16: 2 },
  ...{ float32: 4, float64: 8, float8e4m3: 1, float8e5m2: 1 },
};
export const isFloat = (dtype) => /float/.test(dtype);

/** Most calls are such that their bits show the order of the folds: sums and products of floats. */
const dtypes = Object.keys(bytesOf).flatMap((dtype) => Array(isFloat(dtype) ? 6 : 1).fill(dtype));
export const symmetricDtypes = ["float32", "float16", "bfloat16", "float8e4m3", "float8e5m2"];
const ops = ["sum", "sum", "sum", "prod", "avg", "avg", "avg", "preMul", "preMul", "min", "max"];
const reducing = ["allReduce", "allReduce", "allReduce", "reduceScatter", "reduce"];

/** Most bytes of a rank's own buffer. */
const maxBytes = 2 ** 24;

/** Numbers from one seed. */
export function random(seed) {
  let state = seed >>> 0;
  const word = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  };
  const below = (n) => word() % n;
  return {
    word,
    below,
    pick: (list) => list[below(list.length)],
    chance: (oneIn) => below(oneIn) === 0,
  };
}

/** A setting of a world: default or pinned. */
export function drawPin({ pick, below, chance }, size, buffers) {
  if (chance(4)) return { ...buffers };
  const ring = Array.from({ length: size }, (_, rank) => rank);
  for (let i = size - 1; i > 0; i--) {
    const j = below(i + 1);
    [ring[i], ring[j]] = [ring[j], ring[i]];
  }
  const pin = {
    ...buffers,
    algorithm: pick(["Ring", "Ring", "Tree", undefined]),
    protocol: pick(["LL", "LL128", "Simple", "Simple", undefined]),
    channels: chance(4) ? undefined : 1 + below(24),
    rings: chance(2) ? ring : undefined,
  };
  return Object.fromEntries(Object.entries(pin).filter(([, value]) => value !== undefined));
}

/** A call of a world. Copies are drawn too: one in twenty. */
export function drawCall(draw, size, pin) {
  const { pick, below, chance } = draw;
  const copies = chance(20);
  const collective = copies ? pick(["broadcast", "allGather"]) : pick(reducing);
  const symmetric = !copies && chance(10);
  const dtype = pick(symmetric ? symmetricDtypes : dtypes);
  const op = copies ? undefined : symmetric ? "sum" : pick(ops);
  const es = bytesOf[dtype];
  const blocks = collective === "reduceScatter" || collective === "allGather" ? size : 1;
  const most = Math.floor(maxBytes / es / blocks);
  let count = Math.max(1, Math.min(most, drawCount(draw, size, es, pin)));
  let offset = chance(2) ? 0 : pick([1, 2, 3, 5, 9]);
  if (symmetric) {
    // At other addresses NCCL loads 1- and 2-byte types wrongly, and the call is refused.
    const aligned = 4 / Math.min(4, es);
    count = Math.max(aligned, count - (count % aligned));
    offset *= aligned;
  }
  const inPlace = collective === "allReduce" ? chance(2) : false;
  return {
    ...{ collective, dtype, op, count, offset, symmetric, inPlace, blocks },
    root: below(size),
    style: isFloat(dtype) && !chance(8) ? "wide" : "bits",
  };
}

/** The scalar of a pre-multiplied sum, or the operator itself. */
export function operatorOf({ op, dtype }) {
  if (op !== "preMul") return op;
  return { preMul: isFloat(dtype) ? 0.3 : dtype.endsWith("64") ? 3n : 3 };
}

function drawCount({ pick, below, chance }, size, es, pin) {
  const near = (bytes) => Math.round(bytes / es) + pick([-1, 0, 0, 1]);
  if (chance(3)) return 1 + below(pick([300_000, 2_000_000, 16_000_000]));
  const channels = pin.channels ?? 24;
  const chunk = pick([32_768, 576_000, 2_097_152, 8_192, 16_384]);
  return pick([
    () => 1 + below(33),
    () => near(16 * (1 + below(64))),
    () => near(pick([2048, 8192, 4096, 16_384]) * (1 + below(64))),
    () => near(pick([4096 * size, 5120, 4096, 32_768]) * (1 + below(24))),
    () => near(size * chunk * pick([1, channels])),
    () => pick([73_729, 196_609, 393_217, 100_003, 20_011]),
    () => 1 + below(20_000),
  ])();
}
