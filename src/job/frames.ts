/**
 * Frames: four bytes of length, then a message as JSON, and the one validator of all messages.
 *
 * A table has a row for each kind of message, with the fields of that kind. A frame is refused by name before its text becomes
 * objects where it is too long, nested too deep, or names a field twice. Bytes are base64.
 */

import { escaped } from "../api/error-text.ts";

/** A frame that is not a valid message. */
export class FrameError extends Error {
  /** The field at fault, where it is one. */
  readonly field: string | undefined;

  constructor(message: string, field?: string) {
    super(oneLine(message));
    this.field = field;
  }
}

/** A text of another process on one line of a terminal: characters that break or reorder lines, or control it, are escaped. */
function oneLine(text: string): string {
  return escaped(text, /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu);
}

/** A frame of another version of the protocol. */
export class VersionError extends FrameError {
  /** The version of the other end. */
  readonly version: number;

  constructor(version: number) {
    super(`version ${version} of the protocol, needs version ${protocolVersion}`);
    this.version = version;
  }
}

/** The version of all messages. The first frame of each end has it: ends of different versions refuse each other. */
export const protocolVersion = 2;

/** A field of messages: its check, and its form in JSON where that differs. */
export interface Field<T> {
  /** Throws a `FrameError` that says what the field must be. */
  read(json: unknown): T;
  /** The JSON of a value. */
  write?(value: T): string;
}

/** The fields of each kind of message. */
type Table = Readonly<Record<string, Readonly<Record<string, Field<unknown>>>>>;

/** The value of a field. */
type ValueOf<F> = F extends Field<infer T> ? T : never;

/** A message of a table. */
export type MessageOf<T> = {
  [K in keyof T]: { readonly kind: K } & { readonly [F in keyof T[K]]: ValueOf<T[K][F]> };
}[keyof T];

/** A whole number in a range. */
export function whole(least: number, most: number): Field<number> {
  const read = (json: unknown): number => {
    if (Number.isInteger(json) && (json as number) >= least && (json as number) <= most)
      return json as number;
    throw new FrameError(`a whole number in ${least}..${most}`);
  };
  return { read };
}

/** A text of limited length in UTF-8. */
export function text(mostBytes: number): Field<string> {
  const read = (json: unknown): string => {
    if (typeof json === "string" && Buffer.byteLength(json) <= mostBytes) return json;
    throw new FrameError(`a text of at most ${mostBytes} bytes`);
  };
  return { read };
}

/** A text of limited length that errors show. */
export function line(mostBytes: number): Field<string> {
  const { read } = text(mostBytes);
  return { read: (json) => oneLine(read(json)) };
}

/** One of some words. */
export function oneOf<T extends string>(words: readonly T[]): Field<T> {
  const read = (json: unknown): T => {
    if (words.includes(json as T)) return json as T;
    throw new FrameError(`one of ${words.join(", ")}`);
  };
  return { read };
}

/** True or false. */
export const flag: Field<boolean> = {
  read: (json) => {
    if (typeof json === "boolean") return json;
    throw new FrameError("true or false");
  },
};

const base64 = /^[A-Za-z0-9+/]*={0,2}$/;

/** Bytes of limited length, as base64. */
export function bytes(most: number, least = 0): Field<Uint8Array> {
  const mostLetters = base64Bytes(most);
  const read = (json: unknown): Uint8Array => {
    const isBase64 =
      typeof json === "string" &&
      json.length <= mostLetters &&
      json.length % 4 === 0 &&
      base64.test(json);
    const found = isBase64 ? Buffer.from(json, "base64") : undefined;
    if (found === undefined || found.byteLength > most || found.byteLength < least)
      throw new FrameError(`base64 of ${least === most ? "" : "at most "}${most} bytes`);
    // A copy: small buffers of Node.js share memory with others.
    return new Uint8Array(found);
  };
  const write = ({ buffer, byteOffset, byteLength }: Uint8Array): string =>
    `"${Buffer.from(buffer, byteOffset, byteLength).toString("base64")}"`;
  return { read, write };
}

/** Letters of that many bytes in base64. */
export function base64Bytes(byteLength: number): number {
  return 4 * Math.ceil(byteLength / 3);
}

/** A list of limited length. */
export function listOf<T>(item: Field<T>, most: number): Field<readonly T[]> {
  const { write } = item;
  const read = (json: unknown): readonly T[] => {
    if (!Array.isArray(json) || json.length > most)
      throw new FrameError(`a list of at most ${most}`);
    return json.map(item.read);
  };
  return write === undefined ? { read } : { read, write: (items) => `[${items.map(write)}]` };
}

/** A list that several messages have: its JSON is made once. The list must not change. */
export function shared<T extends object>(field: Field<T>): Field<T> {
  const texts = new WeakMap<T, string>();
  const write = (value: T): string => {
    const json = texts.get(value) ?? jsonOf(field, value);
    texts.set(value, json);
    return json;
  };
  return { read: field.read, write };
}

/** A field that may be left out. */
export function optional<T>(field: Field<T>): Field<T | undefined> {
  return {
    read: (json) => (json === undefined ? undefined : field.read(json)),
    write: (value) => jsonOf(field, value as T),
  };
}

function jsonOf<T>({ write }: Field<T>, value: T): string {
  return write === undefined ? JSON.stringify(value) : write(value);
}

/** A message as the text of a frame. */
export function encode<T extends Table>(table: T, message: MessageOf<T>): Buffer {
  const fields = table[message.kind as string] as Record<string, Field<unknown>>;
  const parts = [`"kind":"${String(message.kind)}"`];
  for (const [name, field] of Object.entries(fields)) {
    const value = (message as Record<string, unknown>)[name];
    if (value !== undefined) parts.push(`"${name}":${jsonOf(field, value)}`);
  }
  return Buffer.from(`{${parts}}`);
}

/**
 * The message of a frame.
 *
 * @throws FrameError that names the fault.
 */
export function decode<T extends Table>(table: T, frame: Uint8Array): MessageOf<T> {
  assertFlat(frame);
  const json = parse(frame);
  const { kind, version } = json;
  const fields = typeof kind === "string" && Object.hasOwn(table, kind) ? table[kind] : undefined;
  if (fields === undefined) throw new FrameError("an unknown kind of message");
  // A later version may have other fields.
  const isVersioned = Object.hasOwn(fields, "version") && Number.isSafeInteger(version);
  if (isVersioned && version !== protocolVersion) throw new VersionError(version as number);
  for (const name of Object.keys(json)) {
    if (name !== "kind" && !Object.hasOwn(fields, name))
      throw new FrameError(`${kind}: the unknown field "${name.slice(0, 64)}"`);
  }
  const message: Record<string, unknown> = { kind };
  for (const [name, { read }] of Object.entries(fields)) {
    try {
      message[name] = read(json[name]);
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      throw new FrameError(`${kind}: the field "${name}" needs ${error.message}`, name);
    }
  }
  return message as MessageOf<T>;
}

function parse(frame: Uint8Array): Readonly<Record<string, unknown>> {
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(frame));
  } catch {
    throw new FrameError("no JSON");
  }
  if (typeof json === "object" && json !== null && !Array.isArray(json))
    return json as Record<string, unknown>;
  throw new FrameError("no object");
}

/** Lists within lists of an object, at most. */
const mostDepth = 4;
const [quote, backslash, comma] = [0x22, 0x5c, 0x2c];
const [openObject, closeObject, openList, closeList] = [0x7b, 0x7d, 0x5b, 0x5d];

/** Refuses a text with deep nesting, an object within, or a field twice, before it becomes objects. */
function assertFlat(frame: Uint8Array): void {
  const { buffer, byteOffset, byteLength } = frame;
  const text = Buffer.from(buffer, byteOffset, byteLength);
  const names = new Set<string>();
  let depth = 0;
  // A text at the beginning of a field is its name.
  let isName = false;
  for (let at = 0; at < text.length; at++) {
    const byte = text[at];
    if (byte === quote) {
      const end = endOfText(text, at + 1);
      if (isName) addName(names, text.toString("latin1", at + 1, end));
      isName = false;
      at = end;
    } else if (byte === openObject || byte === openList) {
      depth++;
      if (depth > mostDepth) throw new FrameError(`nested more than ${mostDepth} deep`);
      isName = byte === openObject;
      if (isName && depth > 1) throw new FrameError("an object within another");
    } else if (byte === closeObject || byte === closeList) depth--;
    else if (byte === comma) isName = depth === 1;
  }
}

function addName(names: Set<string>, name: string): void {
  if (name.includes("\\")) throw new FrameError("a field with an escaped name");
  if (names.has(name)) throw new FrameError(`the field "${name.slice(0, 64)}" twice`);
  names.add(name);
}

/** The place of the quote that ends a text. */
function endOfText(text: Buffer, from: number): number {
  for (let at = from; ; ) {
    const end = text.indexOf(quote, at);
    if (end < 0) return text.length;
    let escapes = 0;
    while (text[end - 1 - escapes] === backslash && end - 1 - escapes >= from) escapes++;
    if (escapes % 2 === 0) return end;
    at = end + 1;
  }
}
