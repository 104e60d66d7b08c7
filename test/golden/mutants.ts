/** Plans over hosts with one rule broken on purpose. */
import type { Mutation } from "../support/mutated.ts";

/** A rule that is broken, in words. */
interface Mutant extends Mutation {
  readonly rule: string;
}

const within =
  (name: string) =>
  (rule: string, from: string, to: string): Mutant => ({
    ...{ rule, file: `algorithms/nccl/${name}.ts`, from, to },
  });
const [choice, hosts, connect] = [within("choice"), within("hosts"), within("connect")];

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
  within("pat")(
    "PAT's nearest child last",
    "[...between, ...within, ...(lowest > 0 ? [0] : [])]",
    "[...(lowest > 0 ? [0] : []), ...between, ...within]",
  ),
  within("fold-order")(
    "a rank folded onto its first child's value",
    "[...orderBelow(tree, first), rank, ...rest]",
    "[rank, orderBelow(tree, first), ...rest]",
  ),
  within("rules")(
    "16 KiB of traffic a channel",
    "minimumTraffic: 16_384",
    "minimumTraffic: 32_768",
  ),
];
