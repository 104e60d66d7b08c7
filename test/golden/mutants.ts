/** Plans over hosts with one rule broken on purpose, each replayed on recorded results by a build of its own. */
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** A rule that is broken. */
interface Mutant {
  /** In words. */
  readonly rule: string;
  /** File of `dist/algorithms/nccl`, the text in it, and the text in its place. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

const within =
  (file: string) =>
  (rule: string, from: string, to: string): Mutant => ({ rule, file, from, to });
const [choice, hosts, connect] = [within("choice.js"), within("hosts.js"), within("connect.js")];

export const mutants: readonly Mutant[] = [
  connect(
    "children of a tree in their order",
    "[node - half, node + after]",
    "[node + after, node - half]",
  ),
  connect("two trees, by channel", "between()[which]", "between()[0]"),
  hosts("a network of 1.2 GB/s a channel", "2.4, 1.2, 0.24", "2.4, 1, 0.24"),
  hosts("the tree's bandwidth within a node doubled", "within < 2 * between", "false"),
  choice(
    "a tree's network hop, on rings too",
    "nodes === ranks ? networkLatency.Tree : networkLatency[algorithm]",
    "networkLatency[algorithm]",
  ),
  choice("the plateau of rings", "topology.ranks)) >= 64", "topology.ranks)) >= 2 ** 40"),
  choice("256 threads of a slow ring", "slow ? 256 : 512", "slow ? 512 : 512"),
  choice("trees with all edges on one GPU", "Math.fround(reached * 0.85)", "reached"),
  choice(
    "half the bandwidth over LL",
    "Math.min(maxLl[cpu][size], found * 0.5)",
    "Math.min(maxLl[cpu][size], found)",
  ),
  choice("three quarters of the bandwidth for PAT", "Math.fround(found * 0.75)", "found"),
  choice("PAT's time by rank", "ranks * 2.8", "ranks * 2.4"),
  choice(
    "PAT for plain reduce-scatters alone",
    '&& scales && collective === "reduceScatter"',
    "&& false",
  ),
  choice("8-bit floats off rings of more than 8", "? 1024 : 1", "? 1 : 1"),
  choice("whole levels of a tree", "Math.floor(Math.log2(nodes))", "Math.ceil(Math.log2(nodes))"),
  {
    ...{ rule: "PAT's nearest child last", file: "pat.js" },
    from: "[...between, ...within, ...(lowest > 0 ? [0] : [])]",
    to: "[...(lowest > 0 ? [0] : []), ...between, ...within]",
  },
  {
    ...{ rule: "a rank folded onto its first child's value", file: "fold-order.js" },
    from: "[...orderBelow(tree, first), rank, ...rest]",
    to: "[rank, orderBelow(tree, first), ...rest]",
  },
  {
    rule: "16 KiB of traffic a channel",
    file: "rules.js",
    from: "minimumTraffic: 16_384",
    to: "minimumTraffic: 32_768",
  },
];

/** Recorded calls of a file that a mutant gives other bits or another plan; it is a build with one text changed. */
export function exposedBy({ file, from, to }: Mutant, folder: string, records: string): number {
  const path = join(folder, "dist/algorithms/nccl", file);
  const text = readFileSync(path, "utf8");
  if (text.split(from).length !== 2) throw new Error(`${file}: "${from}" is not there once`);
  writeFileSync(
    path,
    text.replace(from, () => to),
  );
  try {
    const { stdout, stderr } = spawnSync(
      process.execPath,
      [join(folder, "dist/cli/main.js"), "golden", "check", records, "--json"],
      { encoding: "utf8", maxBuffer: 2 ** 28 },
    );
    if (stdout === "") throw new Error(stderr);
    const report = JSON.parse(stdout) as Record<
      "mismatches" | "planDifferences" | "refusals",
      { index: number }[]
    >;
    const { mismatches, planDifferences, refusals } = report;
    return new Set([...mismatches, ...planDifferences, ...refusals].map(({ index }) => index)).size;
  } finally {
    writeFileSync(path, text);
  }
}
