/** The place of a call in the program: its stack without the library's own frames. */

/** Most frames of the library between the program and a call site; the stack is captured as much deeper. */
const maxOwnFrames = 12;

/** The stack of one call. It becomes text on demand, as for few calls. */
export class CallSite {
  /** Without a stack where the engine keeps none. */
  readonly #captured: { readonly stack?: string } = {};

  /** The call site of the current call of the library. */
  constructor() {
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = stackTraceLimit + maxOwnFrames;
    Error.captureStackTrace?.(this.#captured, CallSite);
    Error.stackTraceLimit = stackTraceLimit;
  }

  /** All frames, innermost first, as the engine writes them. */
  get stack(): readonly string[] {
    return this.#captured.stack?.split("\n").slice(1) ?? [];
  }

  /** Those of the program. */
  get frames(): readonly string[] {
    return programFrames(this.stack);
  }

  /** The innermost of them as `file:line:column`; `undefined` where there is none. */
  get place(): string | undefined {
    return placeIn(this.frames);
  }
}

/** The folder that the library's files are in, as stacks name it; `undefined` in a program's bundle, which has no such files. */
const libraryFolder = /([^\s(]*\/)api\/(?:call-site|api-layer)\.[jt]s:/.exec(
  new CallSite().stack[0] ?? "",
)?.[1];

function isOwn(frame: string): boolean {
  return libraryFolder !== undefined && frame.includes(libraryFolder);
}

/** Marks the frames of the runtime itself. */
const runtime = /[ (]node:/;

/** Frames without those of the library and of the runtime; all of them where no other is left. */
function programFrames(frames: readonly string[]): readonly string[] {
  let isTheirs = true;
  const theirs = frames.filter((line) => {
    // A built-in function such as `map` belongs to the author of its callback.
    if (!line.endsWith("(<anonymous>)")) isTheirs = !(isOwn(line) || runtime.test(line));
    return isTheirs;
  });
  return theirs.length > 0 ? theirs : frames;
}

/** The place of the innermost frame that has one: built-in functions, such as `JSON.parse`, have none. */
function placeIn(frames: readonly string[]): string | undefined {
  const places = frames.map((frame) => /(?:file:\/\/)?([^\s()]+:\d+:\d+)\)?$/.exec(frame)?.[1]);
  return places.find((place) => place !== undefined);
}

/** The line of a program that threw an error, as `file:line:column`; `undefined` where its stack has none. */
export function throwingPlace({ stack }: Error): string | undefined {
  const lines = typeof stack === "string" ? stack.split("\n") : [];
  return placeIn(programFrames(lines.filter((line) => /^ +at /.test(line))));
}

/** Makes the stack of a new error begin in the program, as far as the engine keeps the frames of callers that await. */
export function hideOwnFrames(error: Error): void {
  setStack(error, new CallSite().frames);
}

/** Errors with the stack of a call. */
const withCallSite = new WeakSet<Error>();

/** True where the stack of an error is that of the call which failed with it. */
export function hasCallSite(error: Error): boolean {
  return withCallSite.has(error);
}

/** Gives an error the stack of the call that failed with it first. */
export function showCallSite(error: Error, site: CallSite): void {
  if (withCallSite.has(error)) return;
  withCallSite.add(error);
  setStack(error, site.frames);
}

function setStack(error: Error, frames: readonly string[]): void {
  const stack = [`${error.name}: ${error.message}`, ...frames].join("\n");
  Object.defineProperty(error, "stack", { value: stack, configurable: true, writable: true });
}
