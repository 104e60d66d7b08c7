/** Shared links between ranks, by `--topology` and its options. */
import { fatTree, torus, type Wiring } from "../../algorithms/index.ts";
import { UsageError } from "../context.ts";
import { oneOf, wholeNumbers } from "../options.ts";
import { type PredictOptions, wirings } from "./options.ts";

/** The shared links of `--topology`; `undefined` for a crossbar, which has none. */
export function wiringOf(
  parsed: PredictOptions,
  ranks: number,
  onMachine: boolean,
): Wiring | undefined {
  const named = onMachine ? undefined : parsed.text("topology");
  const name = oneOf("--topology", named ?? "crossbar", wirings);
  for (const [option, of] of [
    ["groups", "fat-tree"],
    ["oversubscription", "fat-tree"],
    ["dimensions", "torus"],
  ] as const) {
    if (parsed.has(option) && name !== of) throw new UsageError(`--${option} goes with ${of}`);
  }
  if (parsed.has("hop-latency-ns") && name === "crossbar") {
    throw new UsageError("--hop-latency-ns: a crossbar has no shared links");
  }
  if (name === "fat-tree") {
    const groups = wholeNumbers("--groups", (parsed.text("groups") ?? "8").split(","), "commas");
    return fatTree(ranks, groups, parsed.decimal("oversubscription", 1, [1, 1e6]));
  }
  if (name === "ring") return torus([ranks]);
  if (name !== "torus") return undefined;
  const text = parsed.text("dimensions");
  if (text === undefined) throw new UsageError("--topology torus needs --dimensions, such as 8x8");
  const dimensions = wholeNumbers("--dimensions", text.split("x"), "x");
  const product = dimensions.reduce((all, size) => all * size, 1);
  if (product === ranks) return torus(dimensions);
  throw new UsageError(`--dimensions: ${text} makes ${product} ranks, --ranks says ${ranks}`);
}
