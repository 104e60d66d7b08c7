/** Checks a whole program: a misspelt word, or the number of no communicator, would leave a call untested in silence. */
import { dtypes } from "../api/index.ts";
import { assertOptions, invalid, textOf } from "../api/option-kinds.ts";
import { assertAmong, assertMembers, assertWhole } from "./argument-checks.ts";
import {
  type CallField,
  callFields,
  communicatorsOf,
  type Placement,
  type Program,
  type ProgramCall,
  type ProgramSplit,
  payloadClasses,
} from "./program.ts";

/** Needs a program of the kit. Operators are checked by the calls. */
export function assertProgram(subject: string, found: unknown): asserts found is Program {
  const members = { size: "number", splits: "array", steps: "array" } as const;
  assertMembers(subject, "program", found, members, "a program, as programs() draws them");
  const program = found as Program;
  assertFields(subject, "program", program, ["size", "issue", "splits", "steps"]);
  assertWhole(subject, "program.size", program.size, 1, 2 ** 31);
  assertAmong(subject, "program.issue", program.issue, ["each", "together"]);
  const comms = splitsChecked(subject, program);
  for (const [at, step] of program.steps.entries()) {
    const path = `program.steps[${at}]`;
    assertMembers(subject, path, step, {}, "a step of a program");
    assertAmong(subject, `${path}.kind`, step.kind, ["call", "group", "replay"]);
    assertWhole(subject, `${path}.comm`, step.comm, 0, comms.length - 1);
    const ranks = (comms[step.comm] as readonly number[]).length;
    if (step.kind === "call") {
      assertCall(subject, `${path}.call`, step.call, ranks);
      assertFields(subject, path, step, ["kind", "comm", "call"]);
      continue;
    }
    assertArray(subject, `${path}.calls`, step.calls);
    for (const [part, call] of step.calls.entries()) {
      assertCall(subject, `${path}.calls[${part}]`, call, ranks);
    }
    const times = step.kind === "replay" ? ["times"] : [];
    if (step.kind === "replay") assertWhole(subject, `${path}.times`, step.times, 0);
    assertFields(subject, path, step, ["kind", "comm", "calls", ...times]);
  }
}

/** The communicators of a program whose splits are right. */
function splitsChecked(subject: string, { size, splits }: Program): readonly (readonly number[])[] {
  const right: ProgramSplit[] = [];
  let comms = communicatorsOf({ size, splits: right });
  for (const [at, split] of splits.entries()) {
    const path = `program.splits[${at}]`;
    assertMembers(subject, path, split, { colors: "array" }, "a split of a program, with colors");
    assertFields(subject, path, split, ["parent", "colors"], ["reversed"]);
    const { parent, colors } = split;
    assertWhole(subject, `${path}.parent`, parent, 0, comms.length - 1);
    assertLength(subject, `${path}.colors`, colors, (comms[parent] as readonly number[]).length);
    for (const color of colors) {
      if (color !== null) assertWhole(subject, `${path}.colors`, color, 0);
    }
    right.push(split);
    comms = communicatorsOf({ size, splits: right });
  }
  return comms;
}

/** The names of the fields of a call that are checked together. */
const namesOf: Readonly<Record<CallField, readonly string[]>> = {
  count: ["count"],
  counts: ["counts"],
  rows: ["counts"],
  root: ["root"],
  order: ["order"],
  even: ["order"],
  ends: ["from", "to"],
  to: ["to"],
  give: ["give", "recv"],
  fold: ["op", "scalars"],
};

function assertCall(subject: string, path: string, call: ProgramCall, ranks: number): void {
  assertMembers(subject, path, call, {}, "a call of a program");
  assertAmong(subject, `${path}.kind`, call.kind, Object.keys(callFields));
  const { kind } = call;
  if (kind === "barrier") {
    assertFields(subject, path, call, ["kind"]);
    return;
  }
  assertAmong(subject, `${path}.dtype`, call.dtype, dtypes);
  assertAmong(subject, `${path}.payload`, call.payload, payloadClasses);
  assertWhole(subject, `${path}.seed`, call.seed);
  assertPlacement(subject, `${path}.placement`, call.placement);
  const memberOf = (field: string): unknown => Reflect.get(call, field);
  const whole = (field: string, most?: number): void =>
    assertWhole(subject, `${path}.${field}`, memberOf(field), 0, most);
  const among = (field: string, words: readonly string[]): void =>
    assertAmong(subject, `${path}.${field}`, memberOf(field), words);
  const row = (field: string, value: unknown, most?: number): void => {
    assertLength(subject, `${path}.${field}`, value, ranks);
    for (const each of value) assertWhole(subject, `${path}.${field}`, each, 0, most);
  };
  const checks: Readonly<Record<CallField, () => void>> = {
    count: () => whole("count"),
    counts: () => row("counts", memberOf("counts")),
    rows: () => {
      const rows = memberOf("counts");
      assertLength(subject, `${path}.counts`, rows, ranks);
      for (const each of rows) row("counts", each);
    },
    root: () => whole("root", ranks - 1),
    order: () => among("order", ["packed", "reversed"]),
    even: () => among("order", ["packed", "reversed", "even"]),
    ends: () => {
      whole("from", ranks - 1);
      whole("to", ranks - 1);
    },
    to: () => row("to", memberOf("to"), ranks - 1),
    give: () => {
      among("give", ["exchange", "both"]);
      among("recv", ["allocated", "exact", "longer"]);
    },
    fold: () => {
      const [op, scalars] = [memberOf("op"), memberOf("scalars")];
      if (scalars === undefined) return;
      assertLength(subject, `${path}.scalars`, scalars, ranks);
      if (typeof op === "object") return;
      throw invalid(subject, `${path}.op`, textOf(op), "{ preMul } where ranks have scalars");
    },
  };
  for (const field of callFields[kind]) checks[field]();
  const names = callFields[kind].flatMap((field) => namesOf[field]);
  assertFields(subject, path, call, ["kind", "dtype", "payload", "seed", "placement", ...names]);
}

function assertPlacement(subject: string, path: string, found: Placement): void {
  assertMembers(subject, path, found, {}, "an object with form, lead, tail and host");
  assertFields(subject, path, found, ["form", "lead", "tail"], ["host", "symmetric"]);
  const { form, lead, tail } = found;
  assertAmong(subject, `${path}.form`, form, ["apart", "oneBlock", "inPlace"]);
  assertWhole(subject, `${path}.lead`, lead, 0);
  assertWhole(subject, `${path}.tail`, tail, 0);
}

/** Needs an object with no fields but these. */
function assertFields(
  subject: string,
  path: string,
  found: object,
  names: readonly string[],
  booleans: readonly string[] = [],
): void {
  const known = names.map((name) => [name, true] as const);
  const kinds = [...known, ...booleans.map((name) => [name, "boolean"] as const)];
  assertOptions<object>(subject, found, Object.fromEntries(kinds), { path });
}

function assertArray(subject: string, field: string, found: unknown): asserts found is unknown[] {
  if (Array.isArray(found)) return;
  throw invalid(subject, field, textOf(found), "an array");
}

function assertLength(
  subject: string,
  field: string,
  found: unknown,
  ranks: number,
): asserts found is unknown[] {
  assertArray(subject, field, found);
  if (found.length === ranks) return;
  throw invalid(subject, field, `${found.length} values`, `one for each of ${ranks} ranks`);
}
