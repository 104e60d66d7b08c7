/** Host memory of a native library, seen as an array without a copy. */
import { koffi } from "./koffi.ts";

let view: ((ptr: bigint, bytes: number) => ArrayBuffer) | undefined;

/** Loads what `hostView` needs; called when libraries are loaded. */
export async function prepareHostView(): Promise<void> {
  view = (await koffi()).view;
}

/** The bytes at an address; valid until the memory is given back. */
export function hostView(ptr: bigint, bytes: number): Uint8Array {
  if (view === undefined) throw new TypeError("hostView is used after prepareHostView");
  return new Uint8Array(view(ptr, bytes));
}
