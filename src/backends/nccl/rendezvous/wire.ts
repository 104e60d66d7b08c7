/** Fields in bytes, one after the other: whole numbers of 32 bits, big end first, and byte strings behind their length. */

/** Bytes that are no message: too short, too long, or not what the field may hold. */
export class WireError extends Error {}

/** Puts fields together. */
export class Writer {
  readonly #parts: Uint8Array[] = [];

  byte(value: number): this {
    this.#parts.push(Uint8Array.of(value));
    return this;
  }

  /** A whole number from 0 to 2^32 - 1. */
  number(value: number): this {
    const part = Buffer.allocUnsafe(4);
    part.writeUInt32BE(value);
    this.#parts.push(part);
    return this;
  }

  float(value: number): this {
    const part = Buffer.allocUnsafe(8);
    part.writeDoubleBE(value);
    this.#parts.push(part);
    return this;
  }

  bytes(value: Uint8Array): this {
    this.number(value.byteLength);
    this.#parts.push(value);
    return this;
  }

  text(value: string): this {
    return this.bytes(Buffer.from(value, "utf8"));
  }

  numbers(values: readonly number[]): this {
    this.number(values.length);
    for (const value of values) this.number(value);
    return this;
  }

  end(): Buffer {
    return Buffer.concat(this.#parts);
  }
}

/** Takes fields apart again; every fault is a `WireError`. */
export class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  byte(): number {
    return this.#take(1).readUInt8();
  }

  number(): number {
    return this.#take(4).readUInt32BE();
  }

  float(): number {
    return this.#take(8).readDoubleBE();
  }

  /** A copy of at most `most` bytes. */
  bytes(most: number): Uint8Array {
    const length = this.number();
    if (length > most) throw new WireError(`a field of ${length} bytes, at most ${most} allowed`);
    return new Uint8Array(this.#take(length));
  }

  text(most: number): string {
    const bytes = this.bytes(most);
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    } catch {
      throw new WireError("a text that is no UTF-8");
    }
  }

  numbers(most: number): number[] {
    const count = this.number();
    if (count > most) throw new WireError(`a list of ${count}, at most ${most} allowed`);
    return Array.from({ length: count }, () => this.number());
  }

  /** Fails when bytes are left. */
  end(): void {
    const left = this.#bytes.length - this.#at;
    if (left > 0) throw new WireError(`${left} bytes too many`);
  }

  #take(length: number): Buffer {
    const end = this.#at + length;
    if (end > this.#bytes.length) throw new WireError("too few bytes");
    const part = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return part;
  }
}
