/**
 * Work of other threads of this process: compression, cryptography, the compiling of WebAssembly.
 *
 * No runtime lists these among its live resources, and each may wake a rank. Linux shows for every thread whether it sleeps, also
 * for one that has work and waits for a processor. The end of a thread's work is an event of this thread's loop.
 */

interface FileSystem {
  readdirSync(path: string): readonly string[];
  readFileSync(path: string, encoding: "latin1"): string;
}

interface TellingRuntime {
  readonly process?: {
    readonly platform?: string;
    readonly getBuiltinModule?: (name: string) => unknown;
  };
  readonly performance?: {
    readonly nodeTiming?: { readonly uvMetricsInfo?: { readonly events: number } };
  };
}

const tasks = "/proc/self/task";

/** States of threads that have nothing to do: asleep, stopped, ended. */
const restingStates = "SITtXZ";

/** True when another thread than this one works now; `undefined` where the system does not tell. */
export function othersWork(): boolean | undefined {
  const { platform, getBuiltinModule } = (globalThis as TellingRuntime).process ?? {};
  if (platform !== "linux") return undefined;
  const files = getBuiltinModule?.("node:fs") as FileSystem | undefined;
  if (files === undefined) return undefined;
  try {
    // This one works, since it looks.
    return files.readdirSync(tasks).filter((task) => works(files, task)).length > 1;
  } catch {
    return undefined;
  }
}

/** True for a thread that is not at rest. One that has ended meanwhile is. */
function works(files: FileSystem, task: string): boolean {
  let text: string;
  try {
    text = files.readFileSync(`${tasks}/${task}/stat`, "latin1");
  } catch {
    return false;
  }
  // The state comes behind the thread's name, which may hold anything.
  const state = text.charAt(text.lastIndexOf(")") + 2);
  return !restingStates.includes(state);
}

/** Number of events that the loop of this thread has had; `undefined` where it does not count them. */
export function eventsSoFar(): number | undefined {
  return (globalThis as TellingRuntime).performance?.nodeTiming?.uvMetricsInfo?.events;
}
