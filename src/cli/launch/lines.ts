/** The output of many processes, told apart line by line. */
import type { Readable, Writable } from "node:stream";
import { StringDecoder } from "node:string_decoder";

/** A line is cut here, so that a rank that writes no line ends fills no memory. */
const mostLetters = 2 ** 20;

/** Puts a prefix before every line; what is not a whole line yet is kept. */
export class LinePrefixer {
  readonly #prefix: string;
  readonly #decoder = new StringDecoder("utf8");
  /** What has come of a line that has not ended, and how many letters that are. */
  #parts: string[] = [];
  #letters = 0;

  constructor(prefix: string) {
    this.#prefix = prefix;
  }

  /** The whole lines that these bytes complete. */
  push(chunk: Buffer): string {
    const [first = "", ...others] = this.#decoder.write(chunk).split("\n");
    let text = this.#add(first);
    for (const line of others) text += this.#endLine() + this.#add(line);
    return text;
  }

  /** What is left when the output is over. */
  end(): string {
    const text = this.#add(this.#decoder.end());
    return this.#letters === 0 ? text : text + this.#endLine();
  }

  /** More of a line; the pieces of it that are too long to wait for its end. */
  #add(part: string): string {
    this.#parts.push(part);
    this.#letters += part.length;
    if (this.#letters <= mostLetters) return "";
    const pieces = piecesOf(this.#parts.join(""));
    const rest = pieces.pop() ?? "";
    this.#parts = [rest];
    this.#letters = rest.length;
    return pieces.map((piece) => this.#line(piece)).join("");
  }

  #endLine(): string {
    const line = this.#line(this.#parts.join(""));
    this.#parts = [];
    this.#letters = 0;
    return line;
  }

  #line(line: string): string {
    return `${this.#prefix}${line}\n`;
  }
}

/** A line in pieces that are not too long. */
function piecesOf(line: string): string[] {
  const pieces: string[] = [];
  let rest = line;
  while (rest.length > mostLetters) {
    // Not between the two halves of a letter.
    const last = rest.charCodeAt(mostLetters - 1);
    const cut = last >= 0xd800 && last < 0xdc00 ? mostLetters - 1 : mostLetters;
    pieces.push(rest.slice(0, cut));
    rest = rest.slice(cut);
  }
  pieces.push(rest);
  return pieces;
}

/** Stops reading from the ranks while the reader of our own output is slower than they are. */
export class Throttle {
  readonly #sink: Writable;
  readonly #waiting = new Set<Readable>();

  constructor(sink: Writable) {
    this.#sink = sink;
  }

  /** To be called after something of that source was written. */
  check(source: Readable): void {
    if (!this.#sink.writableNeedDrain || this.#sink.destroyed) return;
    source.pause();
    this.#waiting.add(source);
    if (this.#waiting.size > 1) return;
    // A reader that is gone drains nothing; those that wait for it would wait for ever.
    const events = ["drain", "error", "close"] as const;
    const resume = (): void => {
      for (const event of events) this.#sink.removeListener(event, resume);
      for (const each of this.#waiting) each.resume();
      this.#waiting.clear();
    };
    for (const event of events) this.#sink.on(event, resume);
  }
}
