// The comparison as text: one table a collective and mode, microseconds of each peer and what ours is of theirs.
import { sizeText } from "twinccl/bench";
import { ratioOf } from "./ratio.mjs";

const timeText = (us) => us.toFixed(us >= 1000 ? 0 : us >= 100 ? 1 : 2);

/** Median time of a peer in a row; `undefined` where it was not run. */
export const medianOf = ({ peers }, name) => peers[name]?.median_us;

/** The ratios that matter: the same way of driving the GPUs on both sides. */
export const ratios = [
  { title: "/native", ours: "twinccl", theirs: "native" },
  { title: "koffi/native", ours: "koffi", theirs: "native" },
  { title: "/torch", ours: "twinccl", theirs: "torch" },
  { title: "one /native", ours: "twinccl, one process", theirs: "native, one process" },
];

function cellText(cell) {
  if (cell?.median_us === undefined) return "-";
  const range = cell.samples > 1 ? `±${timeText((cell.most_us - cell.least_us) / 2)}` : "";
  return `${timeText(cell.median_us)}${range}${cell.right === false ? " WRONG" : ""}`;
}

/** Tables of all rows; where a row has `predicted_us`, that stands behind what was measured. */
export function tableText(results, names) {
  const groups = groupBy(results, keyOf);
  return Array.from(groups, ([key, rows]) => `# ${key} (us)\n${oneTable(rows, names)}\n`).join("");
}

const keyOf = ({ collective, mode }) => `${collective}, float32, ${mode}`;

/** Node 20 has no Map.groupBy. */
function groupBy(items, key) {
  const groups = new Map();
  for (const item of items) {
    const group = groups.get(key(item)) ?? [];
    groups.set(key(item), [...group, item]);
  }
  return groups;
}

function oneTable(rows, names) {
  const shown = names.filter((name) => rows.some((row) => medianOf(row, name) !== undefined));
  if (shown.length === 0) return "nothing was measured\n";
  const compared = ratios.filter(
    ({ ours, theirs }) => shown.includes(ours) && shown.includes(theirs),
  );
  const predicted = rows.some(({ predicted_us: us }) => us !== undefined) ? ["predicted"] : [];
  const head = ["size", ...shown, ...compared.map(({ title }) => title), ...predicted];
  const lines = rows.map((row) => [
    sizeText(row.bytes),
    ...shown.map((name) => cellText(row.peers[name])),
    ...compared.map(({ ours, theirs }) => ratioOf(row, ours, theirs)?.toFixed(2) ?? "-"),
    ...predicted.map(() => (row.predicted_us === undefined ? "-" : timeText(row.predicted_us))),
  ]);
  const widths = head.map((_, at) =>
    Math.max(...[head, ...lines].map((cells) => cells[at].length)),
  );
  return [head, ...lines]
    .map((cells) => `${cells.map((text, at) => text.padStart(widths[at])).join("  ")}\n`)
    .join("");
}

/** Why cells are empty, each reason once. */
export function notRunText(results) {
  const reasons = new Map();
  for (const { mode, peers } of results) {
    for (const [name, { not_run: reason }] of Object.entries(peers)) {
      if (reason === undefined) continue;
      const key = `${name}: ${reason}`;
      reasons.set(key, (reasons.get(key) ?? new Set()).add(mode));
    }
  }
  return Array.from(
    reasons,
    ([key, modes]) => `# not run, ${[...modes].join(", ")}: ${key}\n`,
  ).join("");
}
