// A result of `npm run bench:peers -- --out FILE` as a section of docs/benchmarks.md.
import { table } from "./gpu.mjs";

/** A number with three digits, or all of those before the point. */
const short = (value) => {
  if (value >= 100) return Math.round(value).toLocaleString("en-US");
  return value.toFixed(value >= 10 ? 1 : value >= 1 ? 2 : 3);
};

/** A figure in a unit that people read: what is below a millisecond, in microseconds. */
function figureText({ median, unit, skipped }) {
  if (skipped !== undefined) return `not run: ${skipped}`;
  return unit === "ms" && median < 1 ? `${short(1000 * median)} µs` : `${short(median)} ${unit}`;
}

function goalText(sign, goal, unit, met) {
  if (goal === undefined) return "";
  return `${sign} ${figureText({ median: goal, unit })}${met ? "" : ", missed"}`;
}

function ratiosTable({ rows, ratios }) {
  const find = (name) => rows.find((row) => row.name === name);
  const lines = ratios.map(({ name, peer, times_faster, goal, met }) => [
    name,
    figureText(find(name)),
    peer,
    figureText(find(peer)),
    times_faster.toFixed(2),
    goal === undefined ? "" : `≥ ${goal.toFixed(2)}${met ? "" : ", missed"}`,
  ]);
  return table(["twinccl", "takes", "beside it", "takes", "times as fast", "goal"], lines);
}

/** Rows that have a goal of their own, or were to have one and were not run. */
function scaleTable({ rows, ratios }) {
  const beside = new Set(ratios.flatMap(({ name, peer }) => [name, peer]));
  const shown = rows.filter(
    ({ name, at_most, at_least, skipped }) =>
      at_most !== undefined || at_least !== undefined || (skipped && !beside.has(name)),
  );
  if (shown.length === 0) return "";
  const lines = shown.map((row) => {
    const { name, unit, at_most, at_least, met } = row;
    const goal =
      at_most === undefined
        ? goalText("≥", at_least, unit, met)
        : goalText("≤", at_most, unit, met);
    return [name, figureText(row), goal];
  });
  return `\n${table(["by itself", "found", "goal"], lines)}`;
}

/** The section of a result. */
export function peersSection(document, path) {
  const { machine, versions, peers, commit, date, rounds } = document;
  const facts = [
    `${machine.cpu}, ${machine.cores} cores`,
    `Node.js ${versions.node}`,
    peers.mpi.replace(/^.*\((.*)\)/, "$1"),
    ...(peers.simgrid === undefined || peers.simgrid === "none"
      ? []
      : [`SimGrid ${peers.simgrid}`]),
    `commit ${commit?.slice(0, 7) ?? "unknown"}`,
    ...(date === undefined ? [] : [date.slice(0, 10)]),
  ];
  return `## Speed on a CPU

${facts.join(", ")}. All ranks are simulated in one process. Medians of ${rounds} rounds in which all ran in turn; a
ratio compares what ran in the same round. Open MPI runs 8 processes on these cores. \`${path}\` holds
every sample; \`npm run bench:peers -- --out FILE\` measures them again.

${ratiosTable(document)}${scaleTable(document)}`;
}

/** The all-reduce of 64 MiB on 8 simulated ranks beside Open MPI. */
export function peersSummary({ machine, ratios, commit }) {
  const row = ratios.find(
    ({ name, peer }) => name === "all-reduce, float32, 8 x 64 MiB" && peer.startsWith("Open MPI"),
  );
  const place = `${machine.cpu}, ${machine.cores} cores, commit ${commit.slice(0, 7)}`;
  return [
    [
      "simulated: all-reduce, float32, 8 x 64 MiB",
      "Open MPI",
      `${row.times_faster.toFixed(1)} times as fast`,
      place,
    ],
  ];
}
