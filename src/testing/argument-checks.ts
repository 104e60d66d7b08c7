/** Checks the arguments of the kit: a wrong number or a misspelt word would make an untested property pass. */
import { invalid, textOf } from "../api/option-kinds.ts";

/** Needs a whole number within bounds, both included. */
export function assertWhole(
  subject: string,
  field: string,
  found: unknown,
  least = Number.MIN_SAFE_INTEGER,
  most = Number.MAX_SAFE_INTEGER,
): void {
  const isWhole = typeof found === "number" && Number.isSafeInteger(found);
  if (isWhole && found >= least && found <= most) return;
  const above = least > Number.MIN_SAFE_INTEGER ? ` of at least ${least}` : "";
  const below = most < Number.MAX_SAFE_INTEGER ? ` and at most ${most}` : "";
  throw invalid(subject, field, textOf(found), `a whole number${above}${below}`);
}

/** Needs an object with these members, each of its type. */
export function assertMembers(
  subject: string,
  field: string,
  found: unknown,
  members: Readonly<Record<string, "array" | "function" | "number" | "string">>,
  needed: string,
): void {
  const isOf = ([name, type]: [string, string]): boolean => {
    const member: unknown = Reflect.get(found as object, name);
    return type === "array" ? Array.isArray(member) : typeof member === type;
  };
  const isObject = typeof found === "object" && found !== null;
  if (isObject && Object.entries(members).every(isOf)) return;
  throw invalid(subject, field, textOf(found), needed);
}

/** Needs the results of a program. */
export function assertRun(subject: string, field: string, found: unknown): void {
  const needed = "the results of a program, as runProgram gives them";
  const members = { backend: "string", outcomes: "array" } as const;
  assertMembers(subject, field, found, members, needed);
  for (const [at, outcome] of (found as { outcomes: unknown[] }).outcomes.entries()) {
    const path = `${field}.outcomes[${at}]`;
    assertMembers(subject, path, outcome, { label: "string", ranks: "array" }, needed);
    const { call, ranks } = outcome as { call: unknown; ranks: unknown[] };
    assertMembers(subject, `${path}.call`, call, { kind: "string" }, "a call of a program");
    for (const [rank, held] of ranks.entries()) {
      if (held !== undefined) assertOutcome(subject, `${path}.ranks[${rank}]`, held);
    }
  }
}

/** Needs what a rank sent and holds. */
export function assertOutcome(subject: string, field: string, found: unknown): void {
  const { sent, bytes } = Object(found);
  if (ArrayBuffer.isView(sent) && ArrayBuffer.isView(bytes)) return;
  throw invalid(subject, field, textOf(found), "what a rank sent and holds, as bytes");
}

/** Needs one of these words. */
export function assertAmong(
  subject: string,
  field: string,
  found: unknown,
  words: readonly string[],
): void {
  if (words.some((word) => word === found)) return;
  throw invalid(subject, field, textOf(found), `one of ${words.join(", ")}`);
}

/** Needs an array of such words, at least one. */
export function assertAllAmong(
  subject: string,
  field: string,
  found: unknown,
  words: readonly string[],
): void {
  if (!Array.isArray(found) || found.length === 0) {
    const none = Array.isArray(found) ? "none" : textOf(found);
    throw invalid(subject, field, none, `an array of at least one of ${words.join(", ")}`);
  }
  for (const each of found) assertAmong(subject, field, each, words);
}
