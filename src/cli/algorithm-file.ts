/** An algorithm of a user's own: a file that exports it, found in there and named by `FILE` or `FILE#NAME`. */
import { existsSync } from "node:fs";
import type { Algorithm } from "../algorithms/index.ts";
import type { SpecifiedCollective } from "../api/index.ts";
import { UsageError } from "./context.ts";
import { importFile } from "./module-file.ts";

/** True for what names a file, and no algorithm of the catalogue: it has a slash, or the ending of a script. */
export function isFile(text: string): boolean {
  return /[/\\]|\.[cm]?[jt]s(#|$)/.test(text);
}

/**
 * The algorithm that a file exports: under the name behind `#`; else by default, under the name of the collective, or as
 * the only one. It is not verified yet.
 *
 * @throws UsageError when there is no such file, Node cannot load it, or it is not clear what in it is meant.
 */
export async function loadAlgorithm(
  option: string,
  collective: SpecifiedCollective,
  text: string,
): Promise<Algorithm> {
  const { path, name } = partsOf(text);
  const exported = await importFile(path, option);
  const found = algorithmsIn(exported);
  if (found.size === 0) throw new UsageError(`${option}: ${nothingIn(path, exported)}`);
  const different = new Set(found.values());
  const which = [...found.keys()].map((key) => `${path}#${key}`).join(" or ");
  if (name === undefined) {
    const only = different.size === 1 ? [...different][0] : undefined;
    const meant = found.get("default") ?? found.get(collective) ?? only;
    if (meant !== undefined) return meant;
    throw new UsageError(`${option}: ${path} has ${different.size} algorithms; name one: ${which}`);
  }
  const meant = found.get(name) ?? [...different].find((each) => each.name === name);
  if (meant !== undefined) return meant;
  throw new UsageError(`${option}: ${path} has no algorithm "${name}"; name one: ${which}`);
}

/** By the names of the exports, and by those in a default export that is a table, as files of CommonJS have it. */
function algorithmsIn(exported: Readonly<Record<string, unknown>>): Map<string, Algorithm> {
  const { default: table } = exported;
  const inner = isObject(table) && !isAlgorithm(table) ? Object.entries(table) : [];
  const all = new Map([...inner, ...Object.entries(exported)]);
  return new Map([...all].filter((entry): entry is [string, Algorithm] => isAlgorithm(entry[1])));
}

/** A file, and what in it is meant; the name of a file that exists may hold a # of its own. */
function partsOf(text: string): { readonly path: string; readonly name: string | undefined } {
  const at = text.lastIndexOf("#");
  if (at < 0 || existsSync(text)) return { path: text, name: undefined };
  return { path: text.slice(0, at), name: text.slice(at + 1) };
}

/** An export that should be an algorithm; it is checked later, so that the error names the missing part. */
function isAlgorithm(found: unknown): boolean {
  const marks = ["write", "cost", "credits", "chunksPerBlock"];
  return isObject(found) && marks.some((mark) => mark in found);
}

function isObject(found: unknown): found is object {
  return typeof found === "object" && found !== null;
}

function nothingIn(path: string, exported: Readonly<Record<string, unknown>>): string {
  const kinds = Object.entries(exported).map(([name, value]) => `${name} is ${kindOf(value)}`);
  const found = kinds.length === 0 ? "it exports nothing" : kinds.join(", ");
  const needs = "export default { name, summary, write, … }; docs/algorithms.md tells how";
  return `${path} exports no algorithm: ${found}; needs ${needs}`;
}

function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}
