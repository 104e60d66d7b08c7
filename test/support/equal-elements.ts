/**
 * A setup of all tests: arrays of the same elements are found equal by one pass. `toEqual` otherwise compares each element by its
 * key, which takes more time than the tested calls. Arrays that differ are left to `toEqual`.
 */
import { expect } from "vitest";

const isTyped = (value: unknown): value is NodeJS.TypedArray =>
  ArrayBuffer.isView(value) && !(value instanceof DataView);

const bytesOf = ({ buffer, byteOffset, byteLength }: NodeJS.TypedArray): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength);

/** True for the same bytes, or for elements that are the same and defined: one that is undefined may be none. */
function haveSameElements(a: unknown, b: unknown): boolean {
  if (isTyped(a)) return isTyped(b) && bytesOf(a).equals(bytesOf(b));
  if (!(Array.isArray(a) && Array.isArray(b)) || a.length !== b.length) return false;
  return a.every((each, i) => each !== undefined && Object.is(each, b[i])) && a.length > 0;
}

/** True for arrays that have no other properties, and the same class. */
function areElements(a: object, b: object): boolean {
  if (Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false;
  const length = Array.isArray(a) ? 1 : 0;
  return [a, b].every(
    (each) => Reflect.ownKeys(each).length === (each as unknown[]).length + length,
  );
}

// Files of one worker share the testers, and each runs this module again.
const holder = globalThis as { hasEqualElements?: boolean };
if (holder.hasEqualElements !== true) {
  holder.hasEqualElements = true;
  expect.addEqualityTesters([
    (a: unknown, b: unknown) =>
      haveSameElements(a, b) && areElements(a as object, b as object) ? true : undefined,
  ]);
}
