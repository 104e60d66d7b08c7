/** What a world has to say where no caller listens. */

interface WarningProcess {
  readonly emitWarning?: (text: string, kind: string) => void;
}

/** A warning of the runtime's own kind, where it has one. */
export function emitWarning(text: string, kind: string): void {
  (globalThis as { process?: WarningProcess }).process?.emitWarning?.(text, kind);
}
