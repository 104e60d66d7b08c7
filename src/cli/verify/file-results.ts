/** The result of a program on one rank: memory is read back, so that it outlives its world, and compared between worlds. */

import { inspect, isDeepStrictEqual } from "node:util";
import { firstDifference } from "../../api/bits.ts";
import { DeviceBuffer, type HostArray } from "../../api/index.ts";

/** A result in which every buffer is a copy of its contents. It shares no container and no memory with the program. */
export async function readBack(
  result: unknown,
  seen = new Map<object, unknown>(),
): Promise<unknown> {
  const value = await result;
  if (typeof value !== "object" || value === null) return value;
  if (seen.has(value)) return seen.get(value);
  if (value instanceof DeviceBuffer) {
    if (value.disposed) return "a disposed buffer";
    return { dtype: value.dtype, contents: await value.toHost() };
  }
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return structuredClone(value);
  if (value instanceof Map) {
    const copy = new Map<unknown, unknown>();
    seen.set(value, copy);
    for (const [key, each] of value)
      copy.set(await readBack(key, seen), await readBack(each, seen));
    return copy;
  }
  if (value instanceof Set) {
    const copy = new Set<unknown>();
    seen.set(value, copy);
    for (const each of value) copy.add(await readBack(each, seen));
    return copy;
  }
  if (Array.isArray(value)) {
    const copy: unknown[] = [];
    seen.set(value, copy);
    for (const each of value) copy.push(await readBack(each, seen));
    return copy;
  }
  if (!isContainer(value)) return value;
  // Plain, as a process sends it to its launcher.
  const copy: Record<string, unknown> = {};
  seen.set(value, copy);
  for (const [key, each] of Object.entries(value)) {
    // An assignment to `__proto__` would set the prototype.
    Object.defineProperty(copy, key, { value: await readBack(each, seen), enumerable: true });
  }
  return copy;
}

/** Describes the first difference of two results; `undefined` without one. */
export function resultDifference(
  a: unknown,
  b: unknown,
  names: readonly [string, string],
): string | undefined {
  const found = difference(a, b, "its result", new Map());
  if (found === undefined) return undefined;
  const [where, left, right] = found;
  return `${where}: ${left} on ${names[0]}, ${right} on ${names[1]}`;
}

/** Position and values of a difference. */
type Found = readonly [where: string, a: string, b: string] | undefined;

/** `seen` has the containers that each one was compared with: one object of a result may stand for several of the other. */
function difference(a: unknown, b: unknown, path: string, seen: Map<object, Set<object>>): Found {
  if (ArrayBuffer.isView(a) && ArrayBuffer.isView(b) && classOf(a) === classOf(b)) {
    const found = firstDifference(a, b, elementBytesOf(a));
    return found && [`${path}: element ${found.element} of ${found.length}`, found.a, found.b];
  }
  if (!isContainer(a) || !isContainer(b) || Array.isArray(a) !== Array.isArray(b)) {
    return isDeepStrictEqual(a, b) ? undefined : [path, textOf(a), textOf(b)];
  }
  const others = seen.get(a) ?? new Set();
  if (others.has(b)) return undefined;
  seen.set(a, others.add(b));
  for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) {
    const inner = Array.isArray(a) ? `${path}[${key}]` : `${path}.${key}`;
    const found = difference(ownOf(a, key), ownOf(b, key), inner, seen);
    if (found !== undefined) return found;
  }
  return undefined;
}

function isContainer(value: unknown): value is Readonly<Record<string, unknown>> {
  return Object.prototype.toString.call(value) === "[object Object]" || Array.isArray(value);
}

function ownOf(container: Readonly<Record<string, unknown>>, key: string): unknown {
  return Object.hasOwn(container, key) ? container[key] : undefined;
}

function classOf(value: object): string {
  return Object.prototype.toString.call(value).slice(8, -1);
}

function elementBytesOf(view: ArrayBufferView): number {
  return view instanceof DataView ? 1 : (view as HostArray).BYTES_PER_ELEMENT;
}

function textOf(value: unknown): string {
  return inspect(value, { depth: 2, maxArrayLength: 8, breakLength: Infinity, compact: true });
}
