/** Options by name and kind: an unknown one, or one of another kind, would be ignored in silence, or fail far from here. */
import { maxListed, withArticle } from "./error-text.ts";
import { type CommErrorFacts, InvalidArgumentError } from "./errors.ts";
import { namesText } from "./nearest.ts";
import { typedArrayClass } from "./typed-array.ts";

/** The required kind of a value; `true` where its user checks it more closely. */
type KindOf<Value> = [Value] extends [boolean]
  ? "boolean"
  : [Value] extends [(...args: never[]) => unknown]
    ? "function"
    : [Value] extends [readonly unknown[]]
      ? "array" | true
      : [Value] extends [object]
        ? "object" | true
        : string extends Value
          ? "string" | true
          : true;

/** The requirement of a value: its test, the text of what is needed, and a remedy. */
export interface Rule {
  readonly needed: string;
  readonly hint?: string | undefined;
  readonly holds: (value: unknown) => boolean;
}

/** The kinds of some options, by name, of all of them: a table that lacks one, or has it of another kind, does not compile. */
export type OptionKinds<Options extends object> = {
  readonly [Name in keyof Options]-?: KindOf<Exclude<Options[Name], undefined>> | Rule;
};

const kindRules: Readonly<Record<string, Rule>> = {
  boolean: { needed: "true or false", holds: (value) => typeof value === "boolean" },
  function: { needed: "a function", holds: (value) => typeof value === "function" },
  string: { needed: "a string", holds: (value) => typeof value === "string" },
  array: { needed: "an array", holds: Array.isArray },
  object: {
    needed: "an object",
    holds: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
  },
};

/** An integer within bounds, both included. */
export function integer(least: number, most = Number.MAX_SAFE_INTEGER, hint?: string): Rule {
  const from = least === Number.MIN_SAFE_INTEGER ? "" : ` of at least ${least}`;
  const range = most === Number.MAX_SAFE_INTEGER ? from : ` in ${least}..${most}`;
  const holds = (value: unknown): boolean =>
    Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most;
  return { needed: `an integer${range}`, hint, holds };
}

/** A number above 0, which may be infinite. */
export function aboveZero(hint?: string): Rule {
  return {
    needed: "a number above 0",
    hint,
    holds: (value) => typeof value === "number" && value > 0,
  };
}

/** One of some words. */
export function oneOf(words: readonly string[], hint?: string): Rule {
  const [last = "", ...before] = words.map((word) => `"${word}"`).reverse();
  const needed = before.length === 0 ? last : `${before.reverse().join(", ")} or ${last}`;
  return { needed, hint, holds: (value) => words.some((word) => word === value) };
}

/** Refuses a value of an option that breaks a rule. */
export function assertRule(
  subject: string,
  field: string,
  value: unknown,
  { needed, hint, holds }: Rule,
  facts?: CommErrorFacts,
): void {
  if (!holds(value)) throw invalid(subject, field, textOf(value), needed, hint, facts);
}

/** Options with a value for every name. */
export type Complete<Options extends object> = {
  readonly [Name in keyof Options]-?: Exclude<Options[Name], undefined>;
};

/**
 * Facts beside a fault. `path` is the name of the option that holds these options, where they are nested; `renamed` has the
 * present names of options by their earlier ones.
 */
type Where = Partial<CommErrorFacts> & {
  readonly path?: string;
  readonly renamed?: Readonly<Record<string, string>>;
};

/**
 * Refuses what is no object, names that are none of these, and values of another kind, or that break a rule; `undefined` is none.
 *
 * @throws InvalidArgumentError with the option's name as `field`, preceded by the `path` of nested options; other facts are
 * copied.
 * @example
 * assertOptions("sim", options, { seed: true, strict: "boolean" });
 */
export function assertOptions<Options extends object>(
  subject: string,
  options: Options,
  kinds: OptionKinds<Options>,
  { path, renamed = {}, ...facts }: Where = {},
): void {
  const refuse = (field: string, why: string, hint?: string): never => {
    throw new InvalidArgumentError(
      { headline: `${subject}: ${field}: ${why}`, hint },
      { ...facts, field },
    );
  };
  if (typeof options !== "object" || options === null) {
    refuse(path ?? "options", `found ${textOf(options)}, needs one object with named fields`);
  }
  for (const name in options) {
    const field = path === undefined ? name : `${path}.${name}`;
    if (!Object.hasOwn(kinds, name)) {
      const now = Object.hasOwn(renamed, name) ? renamed[name] : undefined;
      const hint = now === undefined ? undefined : `${name} was renamed: write ${now}`;
      const names = namesText(name, Object.keys(kinds), now === undefined ? undefined : [now]);
      refuse(field, `it is not known here, needs one of ${names}`, hint);
    }
  }
  // Also of options that enumeration leaves out, such as getters of a class.
  for (const name of Object.keys(kinds) as (keyof Options & string)[]) {
    const field = path === undefined ? name : `${path}.${name}`;
    const [kind, value] = [kinds[name], options[name]];
    const rule = typeof kind === "string" ? kindRules[kind] : kind;
    if (typeof rule === "object" && value !== undefined)
      assertRule(subject, field, value, rule, facts);
  }
}

/** A value in a few words: a number, a bigint or a text as it is written, what else there is by its kind. */
export function textOf(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 40));
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "function") {
    const { name } = value as { readonly name: unknown };
    return typeof name === "string" && name !== "" ? `the function ${name}` : "a function";
  }
  if (typeof value !== "object" || value === null) return String(value);
  const kind = Array.isArray(value) ? "array" : (typedArrayClass(value) ?? "object");
  return withArticle(kind);
}

/** The first values of an array, each as `textOf` gives it; an array alone is too long for an error's text. */
export function listText(values: readonly unknown[]): string {
  const shown = Array.from(values.slice(0, maxListed), textOf).join(", ");
  const more = values.length - maxListed;
  return more > 0 ? `[${shown}, and ${more} more]` : `[${shown}]`;
}

/**
 * The error for a wrong argument: `subject: field: found …, needs …`. `found` stands in the text as it is given: values go
 * through `textOf`. `facts` are further facts of the error; a `field` among them replaces the one of the text.
 */
export function invalid(
  subject: string,
  field: string,
  found: string,
  needed: string,
  hint?: string,
  facts: CommErrorFacts = {},
): InvalidArgumentError {
  return new InvalidArgumentError(
    { headline: `${subject}: ${field}: found ${found}, needs ${needed}`, hint },
    { field, ...facts },
  );
}
