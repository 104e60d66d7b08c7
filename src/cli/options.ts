/** Options of a command: one table that is both what `parseArgs` accepts and what `--help` prints. */
import { parseArgs } from "node:util";
import { UsageError } from "./context.ts";

/** One option. */
export interface Option {
  /** A single letter. */
  readonly short?: string;
  /** What the value is, for the help; left out for a switch. */
  readonly value?: string;
  readonly help: string;
}

/** The options of a command by their long names. */
export type OptionTable = Readonly<Record<string, Option>>;

/** What was given. */
export interface Parsed<T extends OptionTable> {
  readonly positionals: readonly string[];
  /** The value of an option; `undefined` when it was not given. */
  readonly text: (name: keyof T & string) => string | undefined;
  /** True when a switch was given. */
  readonly has: (name: keyof T & string) => boolean;
  /** A whole number, `fallback` when it was not given. */
  readonly integer: (name: keyof T & string, fallback: number, least?: number) => number;
}

/**
 * Parses the arguments of a command.
 *
 * @throws UsageError for an unknown option, a missing or superfluous value, or too many positionals.
 */
export function parseOptions<T extends OptionTable>(
  args: readonly string[],
  table: T,
  mostPositionals: number,
): Parsed<T> {
  const { values, positionals } = parse(args, table);
  const extra = positionals[mostPositionals];
  if (extra !== undefined) throw new UsageError(`unexpected argument "${extra}"`);
  const text = (name: string): string | undefined => {
    const value = values[name];
    return typeof value === "string" ? value : undefined;
  };
  return {
    positionals,
    text,
    has: (name) => values[name] !== undefined,
    integer: (name, fallback, least = 0) => integer(`--${name}`, text(name), fallback, least),
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
    return parseArgs({ args: [...args], options, allowPositionals: true, strict: true });
  } catch (error) {
    // Node's messages say what is wrong on their first line; the rest is advice about positionals.
    if (
      error instanceof TypeError &&
      "code" in error &&
      String(error.code).startsWith("ERR_PARSE_ARGS")
    )
      throw new UsageError((error.message.split(/[.\n]/)[0] ?? "").replace(/^U/, "u"));
    throw error;
  }
}

/**
 * Parts the arguments where a script's own begin: at the first word that is neither an option nor an option's value, or
 * behind `--`.
 */
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

function integer(name: string, text: string | undefined, fallback: number, least: number): number {
  if (text === undefined) return fallback;
  const value = Number(text);
  if (!/^-?\d+$/.test(text) || !Number.isSafeInteger(value) || value < least) {
    throw new UsageError(`${name}: found "${text}", needs a whole number of at least ${least}`);
  }
  return value;
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

/** A word out of a list, else an error that shows the list. */
export function oneOf<T extends string>(what: string, found: string, words: readonly T[]): T {
  const word = words.find((each) => each === found);
  if (word !== undefined) return word;
  throw new UsageError(`${what}: found "${found}", needs one of ${words.join(", ")}`);
}
