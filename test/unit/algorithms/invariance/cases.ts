/** Questions of invariance that are drawn, and the answers that runs of the simulation contradict. */
import fc from "fast-check";
import type * as algorithms from "twinccl/algorithms";
import type { Answer, Dependence, InvarianceQuestion, LibraryName } from "twinccl/algorithms";
import {
  contentsFor,
  contradiction,
  kindsSeen,
  placesSeen,
  printsOf,
  type RunKind,
  sizeSeen,
} from "./runs.ts";

/** A question, as data. */
export interface DrawnQuestion {
  readonly ask: Dependence;
  readonly kind: RunKind;
  /** Another number of ranks, library or kind of hosts, by `ask`. */
  readonly more: number;
  readonly library: LibraryName;
  readonly from: number;
  readonly to: number;
  readonly row: number;
  readonly seed: number;
}

const collectives = ["allReduce", "allReduce", "allReduce", "reduceScatter", "reduce"] as const;
const dtypes = ["float32", "bfloat16", "float16", "float64", "float8e4m3", "int32"] as const;
const ops = ["sum", "sum", "sum", "avg", "prod", "max", { preMul: 0.3 }] as const;
const asks = ["size", "position", "channels", "protocol", "ranks", "hosts", "version"] as const;

/** Questions about all dependences, with counts beside the breakpoints of small buffers. */
export const drawnQuestions: fc.Arbitrary<DrawnQuestion> = fc
  .record({
    ask: fc.constantFrom(...asks),
    collective: fc.constantFrom(...collectives),
    ranks: fc.integer({ min: 2, max: 8 }),
    more: fc.integer({ min: 2, max: 8 }),
    hosts: fc.boolean(),
    dtype: fc.constantFrom(...dtypes),
    op: fc.constantFrom(...ops),
    algorithm: fc.constantFrom("", "allreduce:tree", "ring", "^ring;reduce:ring"),
    protocol: fc.constantFrom("", "LL", "Simple", "^LL"),
    channels: fc.constantFrom(0, 1, 2, 7, 8),
    threads: fc.constantFrom(0, 1, 64, 96),
    buffer: fc.constantFrom(0, 1, 2),
    library: fc.constantFrom<LibraryName>("nccl-2.27", "nccl-2.29", "torch-2.14"),
    near: fc.oneof(
      fc.integer({ min: 0, max: 10 }).map((cells) => 256 * cells),
      // Beside the choice of hosts: Tree LL, then Ring LL.
      fc.constantFrom(361, 377, 664, 723, 754, 1150, 1328, 2300),
    ),
    offset: fc.integer({ min: -20, max: 20 }),
    width: fc.integer({ min: 0, max: 12 }),
    row: fc.constantFrom(1, 1, 1, 8),
    seed: fc.integer(),
  })
  .map(({ near, offset, width, row, ...drawn }): DrawnQuestion => {
    const { algorithm, protocol, channels, threads, buffer, ...facts } = drawn;
    const { ask, more, library, seed, collective, ranks, hosts, dtype } = facts;
    const op = dtype === "int32" && typeof facts.op === "object" ? "sum" : facts.op;
    const from = Math.max(1, near + offset);
    const to = from + width;
    const hasRow = Math.floor(to / row) * row >= from;
    const variables = {
      ...(algorithm !== "" && { NCCL_ALGO: algorithm }),
      ...(protocol !== "" && { NCCL_PROTO: protocol }),
      ...(channels > 0 && { NCCL_MIN_CTAS: `${channels}`, NCCL_MAX_NCHANNELS: `${channels}` }),
      ...(threads > 0 && { NCCL_NTHREADS: `${threads}` }),
      ...(buffer > 0 && {
        ...{ NCCL_BUFFSIZE: `${4096 * buffer}`, NCCL_LL_BUFFSIZE: `${2048 * buffer}` },
        NCCL_LL128_BUFFSIZE: `${15_360 * buffer}`,
      }),
    };
    const kind = { collective, ranks, dtype, op, variables, hosts };
    return { ask, kind, more, library, from, to, row: hasRow ? row : 1, seed };
  })
  // An average divides by its ranks, and PAT serves neither scaled sums nor LL.
  .filter(({ ask, kind, more }) => {
    const { op, collective, variables, ranks } = kind;
    const isPat = variables["NCCL_ALGO"]?.startsWith("^ring") === true;
    if (ask === "ranks" && (op === "avg" || ranks === more)) return false;
    return !(isPat && collective === "reduceScatter");
  });

/** The question as `invariance` of a build takes it. */
export function questionOf(
  { ask, kind, more, library, from, to, row }: DrawnQuestion,
  { topologies }: Pick<typeof algorithms, "topologies">,
): InvarianceQuestion {
  const machineOf = (hosts: boolean | undefined) =>
    topologies[hosts === true ? "h200-hosts" : "h200x8"];
  const { collective, ranks, dtype, op, variables, hosts } = kind;
  const own = machineOf(hosts);
  return {
    ...{ collective, dtype, op, variables, row, ask: [ask], counts: { from, to } },
    ranks: ask === "ranks" ? [ranks, more] : ranks,
    root: collective === "reduce" ? 0 : undefined,
    version: ask === "version" ? ["2.28", versionOf(library)] : "2.28",
    topology: ask === "hosts" ? [own, machineOf(hosts !== true)] : own,
  };
}

const versionOf = (library: LibraryName): string =>
  ({ "nccl-2.27": "2.27", "nccl-2.29": "2.29", "torch-2.14": "2.30.7" })[library as "nccl-2.27"] ??
  "";

/** The contradiction of an answer to calls of the simulation; `undefined` where there is none. */
export async function judge(
  question: DrawnQuestion,
  answer: Answer,
  sets = 5,
): Promise<string | undefined> {
  const { ask, kind, more, from, to, row, seed } = question;
  const counts: number[] = [];
  for (let count = row * Math.ceil(from / row); count <= to; count += row) counts.push(count);
  const [fewest, most] =
    ask === "ranks"
      ? [Math.min(kind.ranks, more), Math.max(kind.ranks, more)]
      : [kind.ranks, kind.ranks];
  const contents = contentsFor({ ...kind, ranks: fewest }, sets, seed);
  const own = { ...kind, ranks: fewest };
  const prints = await printsOf(own, counts, contents);
  if (ask === "size") return contradiction(answer, sizeSeen(prints), [own, own]);
  if (ask === "position") return contradiction(answer, placesSeen(prints, row), [own, own]);
  // The first of several kinds that differs is the one of the answer.
  const named = ask === "channels" || ask === "protocol" ? answer.folds?.[1].variables : undefined;
  const others = named === undefined ? othersOf(question, most) : [{ ...kind, variables: named }];
  let seen: number | undefined;
  for (const other of others) {
    const found = kindsSeen(prints, await printsOf(other, counts, contents));
    if (found === undefined) continue;
    if (answer.isInvariant) return `${JSON.stringify(other)}: count ${found} differs`;
    seen = found;
  }
  return contradiction(answer, seen, [own, others[0] ?? own]);
}

/** Kinds of call beside the one in question. */
function othersOf({ ask, kind, library }: DrawnQuestion, most: number): RunKind[] {
  const { variables } = kind;
  if (ask === "ranks") return [{ ...kind, ranks: most }];
  if (ask === "hosts") return [{ ...kind, hosts: kind.hosts !== true }];
  if (ask === "version") return [{ ...kind, like: library }];
  if (ask === "protocol") {
    return ["LL", "Simple"].map((NCCL_PROTO) => ({
      ...kind,
      variables: { ...variables, NCCL_PROTO },
    }));
  }
  return [1, 3, 8].map((channels) => ({
    ...kind,
    variables: { ...variables, NCCL_MIN_CTAS: `${channels}`, NCCL_MAX_NCHANNELS: `${channels}` },
  }));
}
