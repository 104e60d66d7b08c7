/**
 * Separates the output of many processes line by line. Output may be binary, so that bytes stay unchanged: they are handled as
 * Latin-1 strings, in which every byte is one character.
 */
import type { Readable, Writable } from "node:stream";

/** A line is cut here, so that a rank that writes no line ends fills no memory. Letters are counted as UTF-16 does. */
const mostLetters = 2 ** 20;

/** The longest code of a letter in UTF-8; longer ones are no text. */
const mostBytes = 3 * mostLetters;

/** Prefixes every line; an incomplete line is buffered. */
export class LinePrefixer {
  readonly #prefix: string;
  /** An unfinished line so far, and its number of bytes. */
  #parts: string[] = [];
  #bytes = 0;
  /** Letters of the parts that are counted, which only those of a long line are. */
  #letters = 0;
  #counted = 0;

  constructor(prefix: string) {
    this.#prefix = prefix;
  }

  /** The whole lines that these bytes complete, in Latin-1. */
  push(chunk: Buffer): string {
    const [first = "", ...others] = chunk.toString("latin1").split("\n");
    let text = this.#add(first);
    for (const line of others) text += this.#endLine() + this.#add(line);
    return text;
  }

  /** The rest when the output is over. */
  end(): string {
    return this.#bytes === 0 ? "" : this.#endLine();
  }

  /** More of a line; the pieces of it that are too long to wait for its end. */
  #add(part: string): string {
    this.#parts.push(part);
    this.#bytes += part.length;
    // A letter has at least one byte.
    if (this.#bytes <= mostLetters) return "";
    for (; this.#counted < this.#parts.length; this.#counted++) {
      this.#letters += lettersIn(this.#parts[this.#counted] as string);
    }
    if (this.#letters <= mostLetters && this.#bytes <= mostBytes) return "";
    let text = "";
    let rest = this.#parts.join("");
    for (let end = pieceEnd(rest); end < rest.length; end = pieceEnd(rest)) {
      text += this.#line(rest.slice(0, end));
      rest = rest.slice(end);
    }
    this.#keep([rest], rest.length);
    return text;
  }

  #endLine(): string {
    const line = this.#line(this.#parts.join(""));
    this.#keep([], 0);
    return line;
  }

  #keep(parts: string[], bytes: number): void {
    this.#parts = parts;
    this.#bytes = bytes;
    this.#letters = 0;
    this.#counted = 0;
  }

  #line(line: string): string {
    return `${this.#prefix}${line}\n`;
  }
}

/** Where a line is to be cut, before a letter that is one too many; its end where none is. */
function pieceEnd(line: string): number {
  const last = Math.min(line.length, mostBytes);
  let letters = 0;
  for (let at = 0; at < last; at++) {
    letters += lettersAt(line.charCodeAt(at));
    if (letters > mostLetters) return at;
  }
  return last;
}

function lettersIn(part: string): number {
  let letters = 0;
  for (let at = 0; at < part.length; at++) letters += lettersAt(part.charCodeAt(at));
  return letters;
}

/** Letters of UTF-16 that begin with a byte of UTF-8. */
function lettersAt(byte: number): number {
  const isWithin = (byte & 0xc0) === 0x80;
  if (isWithin) return 0;
  return byte >= 0xf0 ? 2 : 1;
}

/** Our own output; while its reader is slower than the ranks, nothing is read from them. */
export class ThrottledSink {
  readonly #sink: Writable;
  readonly #waiting = new Set<Readable>();

  constructor(sink: Writable) {
    this.#sink = sink;
  }

  /** Writes output of one source, bytes in Latin-1. */
  write(text: string, source: Readable): void {
    if (text !== "") this.#sink.write(text, "latin1");
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
