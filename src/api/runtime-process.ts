/** The process of this runtime, where it has one; runtimes beside Node.js have a part of Node's. */
type RuntimeProcess = Partial<(typeof globalThis)["process"]>;

/** Read at each use: a test may put another one in its place. */
export function runtimeProcess(): RuntimeProcess | undefined {
  return (globalThis as { readonly process?: RuntimeProcess }).process;
}
