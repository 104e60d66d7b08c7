/** Warnings for cases without a caller that could get an error. */
import { errorText, escaped } from "./error-text.ts";
import { runtimeProcess } from "./runtime-process.ts";

/** A warning of the runtime's own kind, where it has one. Control characters of it are escaped. */
export function emitWarning(text: string, kind: string): void {
  runtimeProcess()?.emitWarning?.(escaped(text), kind);
}

/** Warns of the rejection of a promise that a callback returned: it is not awaited, and would end the process. */
export function warnOfRejection(returned: unknown, callback: string): void {
  if (typeof returned !== "object" || returned === null || !("then" in returned)) return;
  const warn = (error: unknown): void => {
    const text = `${callback} returned a promise, which was rejected: ${errorText(error)}`;
    emitWarning(text, "TwincclUnseenFailure");
  };
  Promise.resolve(returned).catch(warn);
}
