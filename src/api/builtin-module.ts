interface Runtime {
  readonly process?: { readonly getBuiltinModule?: (name: string) => unknown };
}

/** A module of Node, such as `node:fs`, where the runtime has it; nothing of Node is imported, so that browsers run the library. */
export function builtinModule(name: string): unknown {
  return (globalThis as Runtime).process?.getBuiltinModule?.(name);
}
