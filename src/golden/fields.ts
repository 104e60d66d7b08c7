/** The fields of one line of a file, each read as what it must be; everything else is refused by name. */

/** Where something stands. */
export interface Place {
  readonly file: string;
  /** Counted from 1; left out where the whole file is meant. */
  readonly line?: number;
}

/** A file of recorded results is not what it should be. The message names file, line and field. */
export class GoldenFormatError extends Error {
  readonly file: string;
  readonly line: number | undefined;
  readonly field: string | undefined;

  constructor({ file, line }: Place, fault: string, field?: string) {
    super(`${file}: ${line === undefined ? "" : `line ${line}: `}${fault}`);
    this.file = file;
    this.line = line;
    this.field = field;
  }

  override get name(): string {
    return "GoldenFormatError";
  }
}

/** One line. */
export class Fields {
  readonly #place: Place;
  readonly #values: Readonly<Record<string, unknown>>;
  readonly #read = new Set<string>();

  constructor(line: string, place: Place) {
    this.#place = place;
    this.#values = objectOf(line, place);
  }

  has(field: string): boolean {
    return this.#values[field] !== undefined;
  }

  /** Whatever stands there. */
  raw(field: string): unknown {
    this.#read.add(field);
    return this.#values[field];
  }

  /** A whole number. */
  integer(field: string, least = 0, most = Number.MAX_SAFE_INTEGER): number {
    const value = this.raw(field);
    if (Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most) {
      return value as number;
    }
    const range =
      most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `in ${least}..${most}`;
    throw this.fault(field, `a whole number ${range}`);
  }

  /** A word out of a list. */
  word<T extends string>(field: string, words: readonly T[]): T {
    const value = this.raw(field);
    const word = words.find((each) => each === value);
    if (word !== undefined) return word;
    throw this.fault(field, `one of ${words.join(", ")}`);
  }

  boolean(field: string): boolean {
    const value = this.raw(field);
    if (typeof value === "boolean") return value;
    throw this.fault(field, "true or false");
  }

  /** Hexadecimal digits, so many; a list of `ranks` such texts where each rank has its own. */
  hex(field: string, digits: number, ranks: number | undefined): string | readonly string[] {
    const value = this.raw(field);
    const isHex = (text: unknown): text is string =>
      typeof text === "string" && text.length === digits && /^[0-9a-f]*$/.test(text);
    if (ranks === undefined) {
      if (isHex(value)) return value;
      throw this.fault(field, `${digits} hexadecimal digits`);
    }
    if (Array.isArray(value) && value.length === ranks && value.every(isHex)) return value;
    throw this.fault(
      field,
      `a list of ${ranks} times ${digits} hexadecimal digits, one for each rank`,
    );
  }

  /** Counts fields as read. */
  pass(...fields: readonly string[]): void {
    for (const field of fields) this.#read.add(field);
  }

  /** Fields that were not read. */
  unread(): readonly string[] {
    return Object.keys(this.#values).filter((field) => !this.#read.has(field));
  }

  /** The fault of a field. */
  fault(field: string, needs: string): GoldenFormatError {
    const value = this.#values[field];
    const found = value === undefined ? "nothing" : (JSON.stringify(value).slice(0, 60) as string);
    return new GoldenFormatError(this.#place, `${field}: found ${found}, needs ${needs}`, field);
  }
}

function objectOf(line: string, place: Place): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new GoldenFormatError(place, `is no JSON: ${why}`);
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    return value as Readonly<Record<string, unknown>>;
  }
  throw new GoldenFormatError(place, "needs a JSON object, one recorded call a line");
}
