/** Sessions that are open when the program ends without closing them: they are closed in order while Node.js still runs. */

interface Closable {
  close(): Promise<void>;
}

const open = new Set<Closable>();
let listening = false;

/** Has a session closed when the program has nothing left to do. */
export function closeAtEnd(session: Closable): void {
  open.add(session);
  if (listening) return;
  listening = true;
  process.on("beforeExit", () => {
    for (const each of open) {
      open.delete(each);
      // There is no caller left for an error.
      each.close().catch(() => undefined);
    }
  });
}

/** The session was closed. */
export function closedBefore(session: Closable): void {
  open.delete(session);
}
