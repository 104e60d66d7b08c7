/** `twinccl explain`: the plan of a call, predicted, without running it. */
import { builtCollectives } from "../algorithms/index.ts";
import { createWorld, type Explanation, namedReduceOps, type Question } from "../api/index.ts";
import { algorithmChoice } from "./algorithm-choice.ts";
import { namedBackend } from "./backends.ts";
import { type Command, type Context, UsageError } from "./context.ts";
import { type OptionTable, oneOf, optionLines, parseOptions } from "./options.ts";
import { rootOf, wantedCollective, wantedDtype } from "./wanted.ts";

const options = {
  ranks: { value: "N", help: "number of ranks (8)" },
  count: { value: "N", help: "elements as NCCL counts them; per peer for an all-to-all (1024)" },
  dtype: { value: "TYPE", help: "element type (float32)" },
  op: { value: "OP", help: "sum, prod, max, min or avg (sum)" },
  root: { value: "RANK", help: "root (0)" },
  algorithm: { value: "NAME", help: "algorithm of the catalogue (up to 8 ranks NCCL's plan)" },
  like: { value: "LIBRARY", help: "follow this library's plans, such as nccl-2.28" },
  element: { value: "I", help: "only the chunk of element I of the output, and its fold order" },
  backend: { value: "NAME", help: "sim or nccl (sim)" },
  json: { help: "print one JSON document" },
} as const satisfies OptionTable;

/** The `explain` command. */
export const explainCommand: Command = {
  name: "explain",
  summary: "show the plan of a call: chunks, fold order, steps, cost",
  help: `Usage: twinccl explain COLLECTIVE [options]

Shows what a call would do: algorithm, chunks and the order in which each is folded, every rank's
steps, bytes sent, and the predicted time. Runs nothing.
COLLECTIVE: ${builtCollectives.join(" ")}

${optionLines(options)}`,
  run: runExplain,
};

async function runExplain(args: readonly string[], context: Context): Promise<number> {
  const parsed = parseOptions(args, options, 1);
  const row = wantedCollective(parsed.positionals[0]);
  const { collective } = row;
  if (builtCollectives.every((built) => built !== collective)) {
    throw new UsageError(`${collective} has no plan to explain`);
  }
  const size = parsed.integer("ranks", 8, 1);
  const chosen = parsed.text("algorithm");
  const algorithms = chosen === undefined ? {} : algorithmChoice(collective, chosen);
  const name = parsed.text("backend") ?? "sim";
  const backend = namedBackend(context.backends, name, {
    algorithms,
    like: parsed.text("like"),
  });
  const root = rootOf(row, parsed.integer("root", 0), size);
  const question: Question = {
    collective,
    dtype: row.moves ? wantedDtype(parsed.text("dtype") ?? "float32") : undefined,
    op: row.reduces ? oneOf("--op", parsed.text("op") ?? "sum", namedReduceOps) : undefined,
    count: row.moves ? parsed.integer("count", 1024) : undefined,
    root: row.rooted ? root : undefined,
  };
  const world = await createWorld({ backend, size });
  try {
    const explanation = world.explain(question);
    const element = parsed.has("element") ? parsed.integer("element", 0) : undefined;
    const asJson = parsed.has("json");
    context.out(asJson ? jsonText(explanation, element) : plainText(explanation, element));
    return 0;
  } finally {
    await world.close();
  }
}

function plainText(explanation: Explanation, element: number | undefined): string {
  if (element === undefined) return `${explanation}\n`;
  const { chunk, offset, length, order, fold } = explanation.chunkOf(element);
  return [
    `element ${element} lies in chunk ${chunk}: elements ${offset}..${offset + length - 1}`,
    `value: ${fold}`,
    `order: ${order.join(", ")}`,
    "",
  ].join("\n");
}

function jsonText(explanation: Explanation, element: number | undefined): string {
  // JSON leaves its two functions out by itself.
  const document =
    element === undefined ? explanation : { element, ...explanation.chunkOf(element) };
  return `${JSON.stringify(document, null, 2)}\n`;
}
