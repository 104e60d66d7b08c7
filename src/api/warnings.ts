/** Warnings for cases without a caller that could get an error. */
import { errorText, escaped } from "./error-text.ts";
import { runtimeProcess } from "./runtime-process.ts";

/** A warning of the runtime's own kind; on its console where it has none, as in a browser. Control characters of it are escaped. */
export function emitWarning(text: string, kind: string): void {
  const runtime = runtimeProcess();
  if (runtime?.emitWarning !== undefined) runtime.emitWarning(escaped(text), kind);
  // biome-ignore lint/suspicious/noConsole: the one place for warnings that a browser has
  else console.warn(`${kind}: ${escaped(text)}`);
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
