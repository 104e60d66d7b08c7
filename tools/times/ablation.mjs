// Errors of fits in which numbers of the time model have no effect.
import { fitProfile } from "twinccl/algorithms";
import { errorsOf, markdownTable } from "./report.mjs";

/** Values at which a rate, or another number, has no effect. */
const free = 1e9;
const none = 1e-9;

const each = (folder, names, field) => names.map((name) => `${folder}.${name}.${field}`);
const protocols = ["LL", "LL128", "Simple"];

/** Groups of numbers that are taken away together. */
const rows = [
  ["Ring: `channelUs`", none, each("ring", protocols, "channelUs")],
  ["Ring: `chunkUs`", none, each("ring", protocols, "chunkUs")],
  ["Ring: `ownRate`", free, each("ring", protocols, "ownRate")],
  ["Ring over LL: `firstRate`", free, ["ring.LL.firstRate"]],
  ["Ring over LL: `passUs`", none, ["ring.LL.passUs"]],
  ["Ring over Simple, misaligned blocks: `singleRate`", free, ["ring.Simple.singleRate"]],
  ["LL and misaligned messages: `elementRate`", free, ["elementRate"]],
  ["Tree: `chunkRate`", free, each("tree", ["LL", "Simple"], "chunkRate")],
  ["chain over LL: `passShare`", none, ["chain.passShare"]],
  ["registered all-gather: `ownRate`", free, ["registered.ownRate"]],
  ["registered broadcast: `chunkRate`", free, ["registered.chunkRate"]],
  ["messages: `firstRate`", free, ["exchange.firstRate"]],
  ["messages: `lowRate`", free, ["exchange.lowRate"]],
  ["messages: `messageRate`", free, ["exchange.messageRate"]],
  ["messages: `portRate`", free, ["exchange.portRate"]],
  ["symmetric: `loadUs`", none, ["symmetric.loadUs"]],
  ["symmetric reduce-scatter: `missUs`", none, ["symmetric.missUs"]],
  ["symmetric all-gather: `wordUs`", none, ["symmetric.allGather.wordUs"]],
  ["symmetric all-gather: `crowdPs`", none, ["symmetric.allGather.crowdPs"]],
  ["symmetric LL: `passUs`", none, ["symmetric.low.passUs"]],
];

function without(profile, paths, value) {
  const copy = structuredClone(profile);
  for (const path of paths) {
    const names = path.split(".");
    const last = names.pop();
    names.reduce((at, name) => at[name], copy.numbers)[last] = value;
  }
  return copy;
}

/** The table, for the residuals that `holds` accepts. */
export function ablationTable(origin, measurements, profile, holds) {
  const errors = (start) =>
    errorsOf(fitProfile(origin, measurements, start).residuals.filter(holds));
  const cells = ({ geometric, mean, worst }) => [
    geometric.toFixed(2),
    mean.toFixed(2),
    worst.toFixed(0),
  ];
  return markdownTable(
    ["without", "geometric mean", "mean", "worst"],
    [
      ["(all numbers)", ...cells(errors(profile))],
      ...rows.map(([name, value, paths]) => [
        name,
        ...cells(errors(without(profile, paths, value))),
      ]),
    ],
  );
}
