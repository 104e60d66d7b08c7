/**
 * The ranks of a job agree on a backend before any of them begins with it: all of them open it, or none does.
 *
 * Each rank gives the name of its backend and, where its host lacks what the backend needs, the reason. All ranks compare the
 * same values, and come to the same result. So a choice among backends goes on to the next one on all ranks.
 */
import type { JoinRequest } from "../api/backend-entry.ts";
import { firstLine, rankRows, ranksText, sharedRows } from "../api/error-text.ts";
import { BackendUnavailableError, type CommError, InvalidArgumentError } from "../api/errors.ts";
import { decode, encode, line, type MessageOf, optional } from "./frames.ts";
import { limits } from "./protocol.ts";
import type { Membership } from "./rendezvous.ts";

/** Most characters of the reason of a rank for the others; longer ones are cut. */
const longestReason = 200;

/** The backend of a rank, for the other ranks. */
const choices = {
  choice: { backend: line(limits.keyBytes), missing: optional(line(4 * longestReason)) },
};

type Choice = MessageOf<typeof choices>;

/** The part of a membership that an agreement uses. */
type Ranks = Pick<Membership, "jobId" | "rank" | "size" | "exchange">;

/**
 * Waits for the choices of all ranks. Returns when all have the same backend, and each has what it needs.
 *
 * @param missing The reason why this rank cannot take the backend, as an error.
 * @throws InvalidArgumentError, on every rank, where ranks name different backends. BackendUnavailableError, on every rank, where
 *   one of them cannot take it: `missing` on a rank that has it, elsewhere the first reason with its ranks.
 */
export async function agreeOnBackend(
  ranks: Ranks,
  backend: string,
  missing: BackendUnavailableError | undefined,
  { timeoutMs, signal }: Pick<JoinRequest, "timeoutMs" | "signal">,
): Promise<void> {
  const reason = missing && firstLine(missing).slice(0, longestReason);
  const own = encode(choices, { kind: "choice", backend, missing: reason });
  const found = await ranks.exchange("backend", own, { timeoutMs, signal });
  const all = found.map(choiceOf);
  if (all.some((each) => each.backend !== backend)) throw differentError(all, ranks);
  if (missing !== undefined) throw missing;
  if (all.some((each) => each.missing !== undefined)) throw unavailableError(all, ranks);
}

/** The choice of a rank; a rank that gives anything else has no backend of these. */
function choiceOf(value: Uint8Array): Choice {
  try {
    return decode(choices, value);
  } catch {
    return { kind: "choice", backend: "none in a form of this version", missing: undefined };
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
