/**
 * Separates the output of many processes line by line. Output may be binary, so that bytes stay unchanged: they are handled as
 * Latin-1 strings, in which every byte is one character.
 */
import type { Readable, Writable } from "node:stream";

/** Longest line: longer ones are cut, so that output without line ends does not fill the memory. Letters are UTF-16 units. */
const maxLetters = 2 ** 20;

/** Most bytes of a letter in UTF-8. */
const maxBytes = 3 * maxLetters;

/** Bytes of the output, in Latin-1, for those of a line. `newline` is false for the cut part of a longer line and at the end of input. */
export type LineFormat = (line: string, newline: boolean) => string;

/** Formats every line; an incomplete line is buffered. */
export class LineSplitter {
  readonly #format: LineFormat;
  /** An unfinished line so far, and its number of bytes. */
  #parts: string[] = [];
  #bytes = 0;
  /** Letters of the counted parts; only long lines are counted. */
  #letters = 0;
  #counted = 0;

  constructor(format: LineFormat) {
    this.#format = format;
  }

  /** Returns the output for the lines completed by these bytes. */
  push(chunk: Buffer): string {
    const [first = "", ...others] = chunk.toString("latin1").split("\n");
    let text = this.#add(first);
    for (const line of others) text += this.#endLine(true) + this.#add(line);
    return text;
  }

  /** Returns the output for an unfinished line at the end of input. */
  end(): string {
    return this.#bytes === 0 ? "" : this.#endLine(false);
  }

  /** Extends the unfinished line; returns the output for the parts that exceed the limit. */
  #add(part: string): string {
    this.#parts.push(part);
    this.#bytes += part.length;
    // Each letter takes at least one byte.
    if (this.#bytes <= maxLetters) return "";
    for (; this.#counted < this.#parts.length; this.#counted++) {
      this.#letters += lettersIn(this.#parts[this.#counted] as string);
    }
    if (this.#letters <= maxLetters && this.#bytes <= maxBytes) return "";
    let text = "";
    let rest = this.#parts.join("");
    for (let end = pieceEnd(rest); end < rest.length; end = pieceEnd(rest)) {
      text += this.#format(rest.slice(0, end), false);
      rest = rest.slice(end);
    }
    this.#keep([rest], rest.length);
    return text;
  }

  #endLine(newline: boolean): string {
    const line = this.#format(this.#parts.join(""), newline);
    this.#keep([], 0);
    return line;
  }

  #keep(parts: string[], bytes: number): void {
    this.#parts = parts;
    this.#bytes = bytes;
    this.#letters = 0;
    this.#counted = 0;
  }
}

/** Position of the cut, before the first letter beyond the limit; otherwise the end of the line. */
function pieceEnd(line: string): number {
  const last = Math.min(line.length, maxBytes);
  let letters = 0;
  for (let at = 0; at < last; at++) {
    letters += lettersAt(line.charCodeAt(at));
    if (letters > maxLetters) return at;
  }
  return last;
}

function lettersIn(part: string): number {
  let letters = 0;
  for (let at = 0; at < part.length; at++) letters += lettersAt(part.charCodeAt(at));
  return letters;
}

/** Number of UTF-16 units that start with a byte of UTF-8. */
function lettersAt(byte: number): number {
  const isWithin = (byte & 0xc0) === 0x80;
  if (isWithin) return 0;
  return byte >= 0xf0 ? 2 : 1;
}

/** The launcher's output. While its reader is slower than the ranks, no rank's output is read. */
export class ThrottledSink {
  readonly #sink: Writable;
  readonly #waiting = new Set<Readable>();

  constructor(sink: Writable) {
    this.#sink = sink;
  }

  /** Writes bytes in Latin-1. Their source, if any, is paused while the reader is slower. */
  write(text: string, source?: Readable): void {
    if (text !== "") this.#sink.write(text, "latin1");
    if (source === undefined || !this.#sink.writableNeedDrain || this.#sink.destroyed) return;
    source.pause();
    this.#waiting.add(source);
    if (this.#waiting.size > 1) return;
    // After the reader has closed, no drain event follows, so that waits end here.
    const events = ["drain", "error", "close"] as const;
    const resume = (): void => {
      for (const event of events) this.#sink.removeListener(event, resume);
      for (const each of this.#waiting) each.resume();
      this.#waiting.clear();
    };
    for (const event of events) this.#sink.on(event, resume);
  }
}
