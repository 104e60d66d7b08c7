// The choice check: for many sizes, the plan that is predicted against the one that NCCL logs.
import { createWorld } from "../../dist/api/index.js";
import { isRefused } from "./calls.mjs";
import { random } from "./draw.mjs";
import { planText, predicted } from "./plans.mjs";

const KiB = 1024;
const maxBytes = 64 * KiB * KiB;

/** Sizes where the reading of NCCL leaves room: double or single precision, and the rounding of a switch point. */
const ambiguous = {
  allReduce: [...range(2_488_000, 2_488_012), ...range(9_384_000, 9_384_030)],
  symmetric: [
    ...[441, 442, 443].flatMap((cells) => [cells * KiB - 4, cells * KiB]),
    ...range(1044, 1050).flatMap((cells) => [cells * KiB - 4, cells * KiB]),
  ],
};

function range(from, to) {
  return Array.from({ length: to - from + 1 }, (_, i) => from + i);
}

/**
 * Counts of elements, ascending: so many different ones of 1 B to `most` bytes, evenly over powers of two, and those that
 * are ambiguous.
 */
function countsOf(draw, many, extra, most, bytesOfElement) {
  const counts = new Set();
  const add = (bytes) => {
    if (bytes <= most) counts.add(Math.ceil(bytes / bytesOfElement));
  };
  for (const bytes of [...extra, 1, 4, most]) add(bytes);
  const wanted = counts.size + many;
  while (counts.size < wanted) add(Math.floor(most ** (draw.below(1e6) / 1e6)));
  return [...counts].sort((a, b) => a - b);
}

/** Checks every size for each number of ranks and kind of call; returns totals and every disagreement. */
export async function choiceCheck({ sizes, seed, perKind, buffers, makeGpu, makeSim, onProgress }) {
  const draw = random(seed ^ 0x5eed);
  const result = { checked: 0, agreed: 0, notLogged: 0, byKind: {}, disagreements: [] };
  for (const size of sizes) {
    const backend = makeGpu(buffers);
    const gpu = await createWorld({ backend, size, name: "choice" });
    const twin = await createWorld({ backend: makeSim(buffers), size, name: "choice" });
    try {
      for (const kind of kinds) {
        await checkKind({ kind, draw, perKind, size, gpu, twin, backend, result });
        onProgress(result);
      }
    } finally {
      await gpu.close();
      await twin.close();
    }
  }
  return result;
}

/** Collectives, on bytes; through symmetric memory on float32, which has kernels of its own. */
const kinds = [
  { collective: "allReduce", dtype: "uint8", op: "sum" },
  { collective: "reduceScatter", dtype: "uint8", op: "sum" },
  { collective: "reduce", dtype: "uint8", op: "sum", root: 0 },
  { collective: "allGather", dtype: "uint8" },
  { collective: "broadcast", dtype: "uint8", root: 0 },
  { collective: "allReduce", dtype: "float32", op: "sum", symmetric: true },
  { collective: "reduceScatter", dtype: "float32", op: "sum", symmetric: true },
];

/** The arguments of the root alone. */
function atRoot({ rank }, root, own) {
  return rank === root ? own : {};
}

async function checkKind({ kind, draw, perKind, size, gpu, twin, backend, result }) {
  const { symmetric = false, collective, dtype, op, root } = kind;
  const es = dtype === "uint8" ? 1 : 4;
  // Blocks of all ranks together stay as small as the largest single buffer.
  const blocks = collective === "reduceScatter" || collective === "allGather" ? size : 1;
  const most = Math.floor(maxBytes / blocks / es) * es;
  const extra = symmetric ? ambiguous.symmetric : ambiguous.allReduce;
  // A refused call has no plan to compare.
  const counts = countsOf(draw, perKind, extra, most, es).filter(
    (count) => !isRefused(gpu, { ...kind, count, offset: 0 }),
  );
  const name = `${collective}${symmetric ? " symmetric" : ""} n=${size}`;
  const tally = { checked: 0, agreed: 0 };
  backend.plans?.take();
  await gpu.run(async (comm) => {
    const [send, recv] = [maxBytes, maxBytes].map((length) =>
      comm.alloc(dtype, length / es, { symmetric }),
    );
    for (const count of counts) {
      const blocks = count * size;
      const own = (buffer, length) => buffer.subarray(0, length);
      if (collective === "allReduce") {
        await comm.allReduce({ send: own(send, count), recv: own(recv, count), op });
      } else if (collective === "reduceScatter") {
        await comm.reduceScatter({ send: own(send, blocks), recv: own(recv, count), op });
      } else if (collective === "allGather") {
        await comm.allGather({ send: own(send, count), recv: own(recv, blocks) });
      } else if (collective === "broadcast") {
        await comm.broadcast({
          ...atRoot(comm, root, { send: own(send, count) }),
          recv: own(recv, count),
          root,
        });
      } else {
        await comm.reduce({
          send: own(send, count),
          ...atRoot(comm, root, { recv: own(recv, count) }),
          op,
          root,
        });
      }
    }
    send.dispose();
    recv.dispose();
  });
  const taken = (backend.plans?.take() ?? []).filter((plan) => plan.collective === collective);
  if (taken.length !== counts.length) result.notLogged += counts.length - taken.length;
  for (const [at, plan] of taken.length === counts.length ? taken.entries() : []) {
    const count = counts[at];
    const wanted = predicted(twin, { ...kind, count });
    tally.checked++;
    if (planText(plan) === planText(wanted)) tally.agreed++;
    else {
      const facts = { kind: name, count, bytes: count * es };
      result.disagreements.push({ ...facts, predicted: planText(wanted), taken: planText(plan) });
    }
  }
  result.byKind[name] = tally;
  result.checked += tally.checked;
  result.agreed += tally.agreed;
}
