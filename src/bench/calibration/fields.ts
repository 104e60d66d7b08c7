/** Fields of a file of results, checked one by one: every fault names the file, the field and the found value. */
import type { InvalidArgumentError } from "../../api/index.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";

/** An object of a parsed file, with its place in it. */
export class Fields {
  readonly file: string;
  readonly #path: string;
  readonly #value: Readonly<Record<string, unknown>>;

  constructor(file: string, value: unknown, path = "") {
    this.file = file;
    this.#path = path;
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw invalid(file, path === "" ? "document" : path, textOf(value), "an object");
    }
    this.#value = value as Readonly<Record<string, unknown>>;
  }

  /** The value of a field as it is. */
  get(name: string): unknown {
    return Object.hasOwn(this.#value, name) ? this.#value[name] : undefined;
  }

  /** The path of a field in its file. */
  pathOf(name: string): string {
    return this.#path === "" ? name : `${this.#path}.${name}`;
  }

  /** The error of a field with a wrong value. */
  fault(name: string, needs: string, hint?: string): InvalidArgumentError {
    const value = this.get(name);
    return invalid(
      this.file,
      this.pathOf(name),
      value === undefined ? "nothing" : textOf(value),
      needs,
      hint,
    );
  }

  object(name: string): Fields {
    const value = this.get(name);
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw this.fault(name, "an object");
    }
    return new Fields(this.file, value, this.pathOf(name));
  }

  objects(name: string): readonly Fields[] {
    const value = this.get(name);
    if (!Array.isArray(value)) throw this.fault(name, "a list");
    return value.map((each, i) => new Fields(this.file, each, `${this.pathOf(name)}[${i}]`));
  }

  text(name: string): string {
    const value = this.get(name);
    if (typeof value === "string") return value;
    throw this.fault(name, "a text");
  }

  texts(name: string): readonly string[] {
    const value = this.get(name);
    if (Array.isArray(value) && value.every((each) => typeof each === "string")) return value;
    throw this.fault(name, "a list of texts");
  }

  flag(name: string): boolean {
    const value = this.get(name);
    if (typeof value === "boolean") return value;
    throw this.fault(name, "true or false");
  }

  /** A word out of a list. */
  word<T extends string>(name: string, words: readonly T[]): T {
    const word = words.find((each) => each === this.get(name));
    if (word !== undefined) return word;
    throw this.fault(name, `one of ${words.join(", ")}`);
  }

  whole(name: string, least: number, most = Number.MAX_SAFE_INTEGER): number {
    const value = this.get(name);
    const isWhole = Number.isSafeInteger(value);
    if (isWhole && (value as number) >= least && (value as number) <= most) return value as number;
    const isOpen = most === Number.MAX_SAFE_INTEGER;
    throw this.fault(
      name,
      `a whole number of ${isOpen ? `at least ${least}` : `${least} to ${most}`}`,
    );
  }

  /** A time; JSON has `null` in place of NaN and infinity. */
  positive(name: string): number {
    const value = this.get(name);
    if (typeof value === "number" && value > 0 && value < Number.POSITIVE_INFINITY) return value;
    throw this.fault(name, "a number above 0");
  }
}
