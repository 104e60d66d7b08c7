/** Options of a command: one table for `parseArgs` and for `--help`. */
import { parseArgs } from "node:util";
import { parseSize } from "../bench/sizes.ts";
import { UsageError } from "./context.ts";

/** One option. */
export interface Option {
  /** A single letter. */
  readonly short?: string;
  /** Kind of value, for the help; omitted for a switch. */
  readonly value?: string;
  readonly help: string;
}

/** The options of a command by their long names. */
export type OptionTable = Readonly<Record<string, Option>>;

/** The given options. */
export interface Parsed<T extends OptionTable> {
  readonly positionals: readonly string[];
  /** The value of an option; `undefined` when it was not given. */
  readonly text: (name: keyof T & string) => string | undefined;
  /** True when a switch was given. */
  readonly has: (name: keyof T & string) => boolean;
  /** A whole number, `fallback` when it was not given. */
  readonly integer: (
    name: keyof T & string,
    fallback: number,
    least?: number,
    most?: number,
  ) => number;
  /** A number of elements such as 1000 or 16M (powers of 1024), `fallback` when it was not given. */
  readonly count: (name: keyof T & string, fallback: number) => number;
  /** A number within bounds, both included; `fallback` when it was not given. */
  readonly decimal: (
    name: keyof T & string,
    fallback: number,
    bounds: readonly [least: number, most: number],
  ) => number;
}

/**
 * Parses the arguments of a command.
 *
 * @throws UsageError for an unknown option, a missing or superfluous value, or too many positionals.
 */
export function parseOptions<T extends OptionTable>(
  args: readonly string[],
  table: T,
  maxPositionals: number,
): Parsed<T> {
  const { values, positionals } = parse(args, table);
  const extra = positionals[maxPositionals];
  if (extra !== undefined) throw new UsageError(`unexpected argument "${extra}"`);
  const text = (name: string): string | undefined => {
    const value = values[name];
    return typeof value === "string" ? value : undefined;
  };
  return {
    positionals,
    text,
    has: (name) => values[name] !== undefined,
    integer: (name, fallback, least = 0, most = Number.MAX_SAFE_INTEGER) =>
      integer(`--${name}`, text(name), { fallback, least, most }),
    count: (name, fallback) => count(`--${name}`, text(name), fallback),
    decimal: (name, fallback, bounds) => decimal(`--${name}`, text(name), fallback, bounds),
  };
}

function parserOptions(
  table: OptionTable,
): Record<string, { type: "boolean" | "string"; short?: string }> {
  return Object.fromEntries(
    Object.entries(table).map(([name, { short, value }]) => [
      name,
      {
        type: value === undefined ? ("boolean" as const) : ("string" as const),
        ...(short && { short }),
      },
    ]),
  );
}

function parse(
  args: readonly string[],
  table: OptionTable,
): { values: Record<string, unknown>; positionals: string[] } {
  const options = parserOptions(table);
  try {
    const parsed = parseArgs({
      args: withNegatives(args, table),
      options,
      allowPositionals: true,
      strict: true,
      tokens: true,
    });
    assertOnce(parsed.tokens);
    return parsed;
  } catch (error) {
    // The first line of Node's messages describes the error; the rest is advice about positionals.
    if (
      error instanceof TypeError &&
      "code" in error &&
      String(error.code).startsWith("ERR_PARSE_ARGS")
    )
      throw new UsageError((error.message.split(/[.\n]/)[0] ?? "").replace(/^U/, "u"));
    throw error;
  }
}

/** Throws for a value that another one of the same option would replace. */
function assertOnce(tokens: readonly { kind: string; name?: string; value?: unknown }[]): void {
  const values = new Map<string, unknown>();
  for (const { kind, name, value } of tokens) {
    if (kind !== "option" || name === undefined || value === undefined) continue;
    if (values.has(name)) {
      throw new UsageError(
        `--${name}: found "${values.get(name)}" and "${value}", needs one value`,
      );
    }
    values.set(name, value);
  }
}

/** Splits the arguments before a script's own: at the first word that is neither an option nor its value, or after `--`. */
export function splitAtScript(
  args: readonly string[],
  table: OptionTable,
): { readonly own: readonly string[]; readonly script: readonly string[] } {
  const options = parserOptions(table);
  const parsed = parseArgs({
    ...{ args: [...args], options, allowPositionals: true, strict: false },
    tokens: true,
  });
  const token = parsed.tokens.find(({ kind }) => kind !== "option");
  if (token === undefined) return { own: args, script: [] };
  const from = token.kind === "option-terminator" ? token.index + 1 : token.index;
  return { own: args.slice(0, token.index), script: args.slice(from) };
}

/** Joins an option and a following negative number, which Node would parse as another option. */
function withNegatives(args: readonly string[], table: OptionTable): string[] {
  const joined: string[] = [];
  for (const [at, arg] of args.entries()) {
    const before = at > 0 && !args.slice(0, at).includes("--") ? (args[at - 1] ?? "") : "";
    const option = /^-\.?\d/.test(arg) ? optionNamed(before, table) : undefined;
    if (option === undefined) joined.push(arg);
    else joined[joined.length - 1] = `--${option}=${arg}`;
  }
  return joined;
}

/** Name of the option in an argument, if it takes a value. */
function optionNamed(arg: string, table: OptionTable): string | undefined {
  const found = Object.entries(table).find(([name, { short, value }]) => {
    return value !== undefined && (arg === `--${name}` || arg === `-${short}`);
  });
  return found?.[0];
}

function integer(
  name: string,
  text: string | undefined,
  { fallback, least, most }: { fallback: number; least: number; most: number },
): number {
  if (text === undefined) return fallback;
  const value = Number(text);
  const whole = /^-?\d+$/.test(text) && Number.isSafeInteger(value);
  if (whole && value >= least && value <= most) return value;
  const range = most < Number.MAX_SAFE_INTEGER ? `in ${least}..${most}` : `of at least ${least}`;
  throw new UsageError(`${name}: found "${text}", needs a whole number ${range}`);
}

function count(name: string, text: string | undefined, fallback: number): number {
  if (text === undefined) return fallback;
  const value = /^\d+[KMG]?$/i.test(text) ? parseSize(text) : undefined;
  if (value !== undefined) return value;
  throw new UsageError(
    `${name}: found "${text}", needs a number of elements such as 1000 or 16M, below 2^53`,
  );
}

function decimal(
  name: string,
  text: string | undefined,
  fallback: number,
  [least, most]: readonly [number, number],
): number {
  if (text === undefined) return fallback;
  const value = text.trim() === "" ? Number.NaN : Number(text);
  if (value >= least && value <= most) return value;
  throw new UsageError(`${name}: found "${text}", needs a number in ${least}..${most}`);
}

/** The help lines of a table. */
export function optionLines(table: OptionTable): string {
  const names = Object.entries(table).map(([name, { short, value }]) => {
    const letter = short === undefined ? "    " : `-${short}, `;
    return `  ${letter}--${name}${value === undefined ? "" : ` ${value}`}`;
  });
  const width = Math.max(...names.map((name) => name.length)) + 2;
  const helps = Object.values(table).map(({ help }) => help);
  return names.map((name, index) => `${name.padEnd(width)}${helps[index]}\n`).join("");
}

/** The words of a list with commas between. Throws for one that is there twice. */
export function wordsOf(what: string, text: string): string[] {
  const words = text.split(",");
  const twice = words.find((word, at) => words.indexOf(word) < at);
  if (twice === undefined) return words;
  throw new UsageError(`${what}: found "${twice}" twice, needs it once`);
}

/** The numbers of a list with `between` between its words. */
export function wholeNumbers(
  what: string,
  words: readonly string[],
  between: string,
  least = 1,
): number[] {
  return words.map((word) => {
    const number = /^\d+$/.test(word) ? Number(word) : -1;
    if (number >= least && Number.isSafeInteger(number)) return number;
    const above = least > 0 ? ` of at least ${least}` : "";
    throw new UsageError(
      `${what}: found "${word}", needs whole numbers${above} with ${between} between`,
    );
  });
}

/** Checks that a word is in a list; the error shows the list. */
export function oneOf<T extends string>(what: string, found: string, words: readonly T[]): T {
  const word = words.find((each) => each === found);
  if (word !== undefined) return word;
  throw new UsageError(`${what}: found "${found}", needs one of ${words.join(", ")}`);
}
