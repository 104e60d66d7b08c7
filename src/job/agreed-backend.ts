/**
 * The ranks of a job agree on a backend before any of them begins with it: all of them open it, or none does.
 *
 * Each rank gives the name of its backend, the options that all ranks pass alike and, where its host lacks what the backend needs,
 * the reason. All ranks compare the same values, and come to the same result. So a choice among backends goes on to the next one
 * on all ranks.
 */
import { createHash } from "node:crypto";
import type { JoinRequest } from "../api/backend-entry.ts";
import { firstLine, rankRows, ranksText, sharedRows } from "../api/error-text.ts";
import { BackendUnavailableError, type CommError, InvalidArgumentError } from "../api/errors.ts";
import { decode, encode, line, type MessageOf, optional } from "./frames.ts";
import { limits } from "./protocol.ts";
import type { Membership } from "./rendezvous.ts";

/** Most characters of the reason of a rank for the others; longer ones are cut. */
const longestReason = 200;

/** Most characters of the text of an option for the other ranks. */
const longestOption = 200;

const option = optional(line(4 * longestOption));

/** The backend of a rank, for the other ranks. */
const choices = {
  choice: {
    ...{ backend: line(limits.keyBytes), missing: optional(line(4 * longestReason)) },
    ...{ compareCalls: option, algorithms: option, like: option, topology: option, plan: option },
  },
};

type Choice = MessageOf<typeof choices>;

const agreedNames = ["compareCalls", "algorithms", "like", "topology", "plan"] as const;

/**
 * Options that all ranks of a job pass alike, as texts. Ranks that compare calls at different times wait for each other. So do
 * ranks with different programs of a call, or they get wrong contents.
 */
export type AgreedOptions = {
  readonly [Name in (typeof agreedNames)[number]]?: string | undefined;
};

const noOptions = {
  ...{ compareCalls: undefined, algorithms: undefined, like: undefined },
  ...{ topology: undefined, plan: undefined },
};

/**
 * The text of an option, the same for equal values: fields in the order of their names. The rest of a long text is a hash of it. An
 * object without fields is no option.
 */
export function optionText(value: unknown): string | undefined {
  const text = JSON.stringify(value, inOrder);
  if (text === undefined || text === "{}") return undefined;
  if (text.length <= longestOption) return text;
  const hash = createHash("sha256").update(text).digest("hex");
  return `${text.slice(0, longestOption - hash.length - 1)}…${hash}`;
}

function inOrder(_name: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** The part of a membership that an agreement uses. */
type Ranks = Pick<Membership, "jobId" | "rank" | "size" | "exchange">;

/**
 * Waits for the choices of all ranks. Returns when all have the same backend with the same options, and each has what it needs.
 *
 * @param missing The reason why this rank cannot take the backend, as an error.
 * @throws InvalidArgumentError, on every rank, where ranks name different backends or options. BackendUnavailableError, on every rank, where
 *   one of them cannot take it: `missing` on a rank that has it, elsewhere the first reason with its ranks.
 */
export async function agreeOnBackend(
  ranks: Ranks,
  backend: string,
  missing: BackendUnavailableError | undefined,
  { timeoutMs, signal }: Pick<JoinRequest, "timeoutMs" | "signal">,
  options: AgreedOptions = {},
): Promise<void> {
  const reason = missing && firstLine(missing).slice(0, longestReason);
  const own = encode(choices, {
    ...noOptions,
    ...options,
    kind: "choice",
    backend,
    missing: reason,
  });
  const found = await ranks.exchange("backend", own, { timeoutMs, signal });
  const all = found.map(choiceOf);
  if (all.some((each) => each.backend !== backend)) throw differentError(all, ranks);
  if (missing !== undefined) throw missing;
  if (all.some((each) => each.missing !== undefined)) throw unavailableError(all, ranks);
  for (const name of agreedNames) {
    if (all.some((each) => each[name] !== all[0]?.[name])) throw optionError(name, all, ranks);
  }
}

/** The choice of a rank; a rank that gives anything else has no backend of these. */
function choiceOf(value: Uint8Array): Choice {
  try {
    return decode(choices, value);
  } catch {
    const backend = "none in a form of this version";
    return { ...noOptions, kind: "choice", backend, missing: undefined };
  }
}

function differentError(all: readonly Choice[], { jobId, rank, size }: Ranks): CommError {
  const rows = all.map(({ backend }, each) => ({ rank: each, cells: [backend] }));
  return new InvalidArgumentError(
    {
      headline: `connect: the ranks of "${jobId}" take different backends`,
      table: sharedRows(rows),
      hint: "pass the same backend on every rank, or the same firstAvailable(...)",
    },
    { rank, size, comm: jobId, field: "backend" },
  );
}

function optionError(
  name: keyof AgreedOptions,
  all: readonly Choice[],
  { jobId, rank, size }: Ranks,
): CommError {
  const rows = all.map((each, from) => ({ rank: from, cells: [each[name] ?? "left out"] }));
  const backend = all[rank]?.backend;
  return new InvalidArgumentError(
    {
      headline: `connect: ${name}: the ranks of "${jobId}" pass different ones to ${backend}()`,
      table: sharedRows(rows),
      hint: `pass the same options to ${backend}() on every rank`,
    },
    { rank, size, comm: jobId, field: name },
  );
}

function unavailableError(all: readonly Choice[], { jobId, rank, size }: Ranks): CommError {
  const rows = all.flatMap(({ missing }, each) =>
    missing === undefined ? [] : [{ rank: each, cells: [missing] }],
  );
  const ranks = rows.map((row) => row.rank);
  const backend = all[rank]?.backend;
  return new BackendUnavailableError(
    {
      headline: `connect: ${backend} cannot be used on ${ranksText(ranks)}: ${rows[0]?.cells[0]}`,
      table: rows.length > 1 ? rankRows(rows) : undefined,
      hint: "all ranks of a job take the same backend; firstAvailable(...) takes the first that all of them can use",
    },
    { rank, size, comm: jobId, ranks },
  );
}
